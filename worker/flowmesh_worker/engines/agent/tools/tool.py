"""The interface between ``llm.agent`` and a tool."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class ToolError(Exception):
    """A failed call; its message is shown to the model."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """Identifies a call, equally in every attempt: the action, and a name inside it."""

    action_id: str
    name: str


class Tool(Protocol):
    """A function that a model may call. Several calls run at once.

    Attributes:
        name: the name that the model uses.
        description: shown to the model.
        parameters: a JSON schema of an object with plain properties.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Runs the tool on arguments that satisfy the schema; returns text for the model.

        Raises:
            ToolError: the call failed; reported to the model.
            AttemptError: reported to the model too, unless it is retryable.
        """
        ...


def schema_of(properties: Mapping[str, Any], *optional: str) -> Mapping[str, Any]:
    """Returns a schema of an object with these properties, all required but the optional."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
