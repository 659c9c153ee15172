"""The workflows that a command is about, as the user named them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkflowSelection:
    """What the options that all commands on workflow files take say together.

    Attributes:
        files: YAML files; ``-`` is standard input.
        namespaces: tenants: one for all workflows, or one each in order; None leaves the files'.
        settings: ``param=value`` for the workflows that declare the parameter.
    """

    files: Sequence[Path]
    namespaces: Sequence[str] | None = None
    settings: Sequence[str] | None = None
