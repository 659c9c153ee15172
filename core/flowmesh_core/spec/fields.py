"""The types of fields that several models share, with the words for what they expect."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict, JsonValue

from flowmesh_core.spec.quantities import DURATION_PATTERN, MEMORY_PATTERN, USD_PATTERN

API_VERSION = "flowmesh.dev/v1alpha1"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
NAMESPACE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
OBJECT_KEY_PATTERN = r"^[A-Za-z0-9._-]{1,253}$"
DATA_KEY_PATTERN = r"^[A-Za-z0-9._-]{0,240}[.](jsonl|ndjson|json|csv|tsv|parquet)$"
SELECTED_NAMESPACE_PATTERN = r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$"
ENGINE_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
CIDR_PATTERN = r"^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$"
RESOURCE_PATTERN = r"^[a-z0-9.-]{1,189}/[A-Za-z0-9._-]{1,63}$"

PATTERN_WORDS = {
    DURATION_PATTERN: "a duration such as 90s, 30m, 12h or 30d",
    MEMORY_PATTERN: "an amount of memory such as 4Gi or 512Mi",
    USD_PATTERN: 'an amount of dollars in quotes, such as "0.50"',
    NAME_PATTERN: "a name of letters, digits, - and _ (at most 63, a letter or digit first)",
    VARIABLE_PATTERN: "a name of letters, digits and _ (at most 63, no digit first)",
    OBJECT_NAME_PATTERN: "a name of small letters, digits, - and . (at most 253)",
    NAMESPACE_PATTERN: "a namespace's name: small letters, digits and - (at most 63)",
    OBJECT_KEY_PATTERN: "a key of letters, digits, -, _ and . (at most 253)",
    DATA_KEY_PATTERN: "a key that ends in .jsonl, .ndjson, .json, .csv, .tsv or .parquet",
    SELECTED_NAMESPACE_PATTERN: "a namespace's name, or * for every namespace",
    CIDR_PATTERN: "a range of addresses such as 10.1.0.0/16",
    ENGINE_PATTERN: "an engine's name, such as data.sql",
    RESOURCE_PATTERN: "an extended resource such as nvidia.com/gpu",
}
"""The expected form of a string, by the pattern that it does not match."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN)]
ObjectName = Annotated[str, StringConstraints(pattern=OBJECT_NAME_PATTERN)]
Namespace = Annotated[str, StringConstraints(pattern=NAMESPACE_PATTERN)]
ObjectKey = Annotated[str, StringConstraints(pattern=OBJECT_KEY_PATTERN)]
DataKey = Annotated[str, StringConstraints(pattern=DATA_KEY_PATTERN)]
SelectedNamespace = Annotated[str, StringConstraints(pattern=SELECTED_NAMESPACE_PATTERN)]
Cidr = Annotated[str, StringConstraints(pattern=CIDR_PATTERN)]
EngineName = Annotated[str, StringConstraints(pattern=ENGINE_PATTERN)]
ResourceName = Annotated[str, StringConstraints(pattern=RESOURCE_PATTERN)]
Duration = Annotated[str, StringConstraints(pattern=DURATION_PATTERN)]
Memory = Annotated[str, StringConstraints(pattern=MEMORY_PATTERN)]
TrustLevel = Annotated[int, Field(ge=0, le=3)]
Usd = Annotated[str, StringConstraints(pattern=USD_PATTERN)]


FILLED: JsonDict = {"x-flowmesh-filled": True}
"""Of a field that is not a plain string: ``${params.x}`` may stand in its place in a file. The
models see the value that was filled in; the schemas for clusters and editors take both."""
PARAMETER_PATTERN = r"\$\{\s*params\.[A-Za-z_]"
"""What a text with a reference to a parameter has in it."""
CEL_RULES = "x-kubernetes-validations"
LIST_KEYS = "x-kubernetes-list-map-keys"
"""Of a list: the fields that name an entry, unique in it."""
TIME: JsonDict = {"format": "date-time"}
"""Of a string: a time in RFC 3339."""


def cel_rules(*rules: tuple[str, str]) -> JsonDict:
    """Returns rules across fields for the API server, given CEL conditions and messages."""
    listed: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return {CEL_RULES: listed}


def key_rule(of: str) -> JsonDict:
    """Returns the rule that a map's keys are names, which a structural schema cannot express.

    Args:
        of: what is named, with its article.
    """
    return cel_rules(
        (f"self.all(k, k.matches('{NAME_PATTERN}'))", f"{of} has {PATTERN_WORDS[NAME_PATTERN]}")
    )


class SpecModel(BaseModel):
    """The base of all models: no unknown fields, no silent conversions, camelCase outside."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        protected_namespaces=(),
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Returns itself: it is frozen, and pydantic would copy each default for each step."""
        return self
