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
    """A key of a ConfigMap; its suffix determines the format of the rows."""

    name: ObjectName = Field(description="The ConfigMap, in the workflow's namespace.")
    key: DataKey = Field(
        description="The key: a file name that ends in .jsonl, .json, .csv, .tsv or .parquet, as"
        " created by `kubectl create configmap NAME --from-file=FILE`."
    )


class InputSpec(SpecModel):
    """An external input, from exactly one source: a name, rows, a ConfigMap or an output.

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
        description="A small data set, given inline as a list of rows. A string stands for a row"
        " with the column `text`.",
        json_schema_extra=FILLED,
    )
    config_map: ConfigMapKey | None = Field(
        default=None,
        description="A small data set in the cluster: a key of a ConfigMap in the workflow's"
        " namespace. It is read once, when the workflow is accepted.",
    )
    output: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="An output of another run in the namespace: RUN/OUTPUT. RUN is the uid of a"
        " run, or the name of a workflow, which stands for its newest successful run. The output is"
        " looked up once, when the workflow is accepted.",
    )
    config: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="For a Hugging Face data set: the configuration to read.",
    )
    split: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="For a Hugging Face data set: the split to read.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="For a Hugging Face repository: a branch, tag or commit, like `@REVISION` at"
        " the end of its address. A run resolves it once.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=2**53,
        description="For a data set: the maximum number of rows to take, from the first one on."
        " Files with only later rows are not fetched.",
        json_schema_extra=FILLED,
    )
    columns: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="For a data set: the columns to take.",
        json_schema_extra=FILLED,
    )
    secrets: list[Name] = Field(
        default=[],
        max_length=16,
        description="Names of the secrets that are sent to the worker for the import only, such as"
        " HF_TOKEN or AWS_ACCESS_KEY_ID. In a cluster, spec.secrets says which Secrets hold them.",
    )
