"""Inputs of a service: those of a workflow, and what the runs of a workflow have published."""

from pydantic import ConfigDict, Field, model_validator

from flowmesh_core.spec.fields import cel_rules
from flowmesh_core.spec.inputs import ONE_SOURCE_RULE, InputSpec

_FOLLOW_RULE = "follow is for output: only what a workflow publishes can be followed"


class ServiceInputSpec(InputSpec):
    """An input of a service: one as in a workflow, or an output of a workflow."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "[has(self.model), has(self.dataset), has(self.adapter), has(self.configMap),"
                " has(self.output)].filter(x, x).size() <= 1",
                ONE_SOURCE_RULE,
            ),
            ("!has(self.follow) || !self.follow || has(self.output)", _FOLLOW_RULE),
        )
    )

    output: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="An output of a workflow's newest successful run: WORKFLOW/OUTPUT, or"
        " NAMESPACE/WORKFLOW/OUTPUT, where NAMESPACE must be the service's own.",
    )
    follow: bool = Field(
        default=False,
        description="Whether to make a new release when a newer run has published the output."
        " Without it, the service keeps the output with which it was applied.",
    )

    @model_validator(mode="after")
    def _follows_an_output(self) -> "ServiceInputSpec":
        if self.follow and self.output is None:
            raise ValueError(_FOLLOW_RULE)
        return self
