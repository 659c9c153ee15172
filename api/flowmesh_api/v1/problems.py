"""A mistake in a workflow, apart from the other types: errors import it without msgspec."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a workflow.

    Attributes:
        path: the field, e.g. ``spec.steps[3].inputs.model``.
        message: what is wrong and what was expected, with the nearest valid name.
        line: the line in the file, from 1; 0 where there is no file.
        column: the column, from 1; 0 where unknown.
    """

    path: str
    message: str
    line: int = 0
    column: int = 0
