"""The workflow files that a command works on, with the options about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkflowSelection:
    """The options that all commands on workflow files share.

    Attributes:
        files: YAML files; ``-`` is standard input.
        namespaces: one for all workflows, or one each in order; None keeps those in the files.
        settings: ``param=value``, for the workflows that declare the parameter, by its type.
        inputs: ``input=source``, applied to the workflows that declare the input.
    """

    files: Sequence[Path]
    namespaces: Sequence[str] | None = None
    settings: Sequence[str] | None = None
    inputs: Sequence[str] | None = None
