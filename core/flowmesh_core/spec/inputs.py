"""Inputs of a workflow from outside: content by name, by reference, or written in the file."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from flowmesh_core.spec.fields import FILLED, DataKey, Name, ObjectName, SpecModel, cel_rules

TEXT_COLUMN = "text"


def as_row(value: Any) -> Any:
    """Returns a row of a file as a mapping: a text is the column ``text``."""
    return {TEXT_COLUMN: value} if isinstance(value, str) else value


Row = Annotated[
    dict[str, Any],
    BeforeValidator(as_row),
    WithJsonSchema(
        {"anyOf": [{"additionalProperties": True, "type": "object"}, {"type": "string"}]}
    ),
]
ONE_SOURCE_RULE = "exactly one of model, dataset, adapter, rows, configMap and output must be given"


class ConfigMapKey(SpecModel):
    """One key of a ConfigMap; its suffix gives the format of the rows."""

    name: ObjectName = Field(description="The ConfigMap, in the workflow's namespace.")
    key: DataKey = Field(
        description="The key: a file's name that ends in .jsonl, .json, .csv, .tsv or .parquet, as"
        " `kubectl create configmap NAME --from-file=FILE` makes it."
    )


class InputSpec(SpecModel):
    """An input from outside, from exactly one source: a name, rows, a ConfigMap or an output.

    The API server's rule leaves rows out: it sees no field whose values have several types. The
    compiler checks the whole rule.
    """

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "[has(self.model), has(self.dataset), has(self.adapter),"
                " has(self.configMap), has(self.output)].filter(x, x).size() <= 1",
                ONE_SOURCE_RULE,
            )
        )
    )

    model: str | None = Field(
        default=None,
        min_length=1,
        description="A model: a built-in name, ./dir, s3://, https://, hf://org/name[@revision] or"
        " cas:<reference>.",
    )
    dataset: str | None = Field(
        default=None,
        min_length=1,
        description="A data set: ./file (jsonl, json, csv, parquet), s3://, https://,"
        " hf://datasets/org/name or cas:<reference>.",
    )
    adapter: str | None = Field(
        default=None,
        min_length=1,
        description="A LoRA adapter: ./dir or cas:<reference>.",
    )
    rows: list[Row] | None = Field(
        default=None,
        description="A small data set, written here: a list of rows. A text is a row with the"
        " column `text`.",
        json_schema_extra=FILLED,
    )
    config_map: ConfigMapKey | None = Field(
        default=None,
        description="A small data set in the cluster: a key of a ConfigMap of the workflow's"
        " namespace, read once, when the workflow is accepted.",
    )
    output: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="What a run of the namespace has published: RUN/OUTPUT. The run is named by its"
        " uid, or by its workflow, of which the newest run that succeeded is meant. It is looked up"
        " once, when the workflow is accepted.",
    )
    config: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Of a Hugging Face data set: which of its configurations to read.",
    )
    split: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Of a Hugging Face data set: which of its splits to read.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Of a Hugging Face repository: a branch, tag or commit, as `@REVISION` at the"
        " end of its address. A run resolves it once.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=2**53,
        description="Of a data set: the most rows to take, from the first on; files beyond them"
        " are not fetched.",
        json_schema_extra=FILLED,
    )
    columns: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Of a data set: the columns to take.",
        json_schema_extra=FILLED,
    )
    secrets: list[Name] = Field(
        default=[],
        max_length=16,
        description="Names of secrets sent to the worker for the import only: HF_TOKEN, or"
        " AWS_ACCESS_KEY_ID and the like; spec.secrets gives their place in a cluster.",
    )
