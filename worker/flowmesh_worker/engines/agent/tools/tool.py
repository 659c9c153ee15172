"""What a tool is to the model and to the engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class ToolError(Exception):
    """A call that went wrong, in words for the model."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where a call stands, the same in every attempt: the action, and a name inside it."""

    action_id: str
    name: str


class Tool(Protocol):
    """A function that a model may call. Several calls run at once.

    Attributes:
        name: what the model calls it by.
        description: what the model is told.
        parameters: a JSON schema of an object with plain properties.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Runs it on arguments that meet the schema.

        Raises:
            ToolError: told to the model.
            AttemptError: told to the model too, unless another attempt may end differently.
        """
        ...


def schema_of(properties: Mapping[str, Any], *optional: str) -> Mapping[str, Any]:
    """A schema of an object with these properties, all but some required."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
