"""Help of commands with the options of each panel below a heading of its own.

Typer shows panels only in rich markup, which takes longer to load than most commands run.
"""

from typing import Any

import typer
from typer.core import TyperCommand

WHERE_PANEL = "Where"
"""Of the options that say on which fabric a command works, which nearly every command has."""
_ARGUMENTS, _OPTIONS = "Arguments", "Options"


class PanelCommand(TyperCommand):
    """A command whose own options come first, and those of panels after them."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the sections of arguments, options and panels."""
        sections: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(_panel(parameter), []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def show_panels(group: typer.Typer) -> None:
    """Gives the commands of a group, and of the groups in it, help with panels."""
    for command in group.registered_commands:
        command.cls = PanelCommand
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            show_panels(inner.typer_instance)


def _panel(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _ARGUMENTS
    return getattr(parameter, "rich_help_panel", None) or _OPTIONS
