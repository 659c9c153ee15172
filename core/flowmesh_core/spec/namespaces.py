"""How cache policies, quotas and reserved pools select namespaces."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flowmesh_core.spec.error_messages import RULE
from flowmesh_core.spec.fields import SelectedNamespace, SpecModel, cel_rules

_SELECT_RULE = "names or selector must be given"


class NamespaceSelector(SpecModel):
    """Selects namespaces by their labels."""

    match_labels: dict[str, str] = Field(
        min_length=1, max_length=32, description="Labels, all of which a namespace must have."
    )


class SelectedNamespaces(SpecModel):
    """The namespaces to which an object applies, by name or by label."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            ("(has(self.names) && size(self.names) > 0) || has(self.selector)", _SELECT_RULE)
        )
    )

    names: list[SelectedNamespace] = Field(
        default=[], max_length=1000, description="Namespaces by name; * selects every namespace."
    )
    selector: NamespaceSelector | None = Field(
        default=None, description="Selects namespaces by label, in addition to names."
    )

    @model_validator(mode="after")
    def _select(self) -> Self:
        if not self.names and self.selector is None:
            raise PydanticCustomError(RULE, _SELECT_RULE)
        return self

    @property
    def labels(self) -> dict[str, str]:
        """Labels of namespaces that are selected by label; empty where none are."""
        return dict(self.selector.match_labels) if self.selector else {}
