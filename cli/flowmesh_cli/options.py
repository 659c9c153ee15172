"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.help_panels import WHERE_PANEL

StateDirOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="State folder of the fabric, with its store and the caches of its workers.",
        envvar="FLOWMESH_STATE_DIR",
        show_default=".flowmesh",
        rich_help_panel=WHERE_PANEL,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
FilesArgument = Annotated[
    list[Path], typer.Argument(help="Workflow and cache policy files, or - for standard input.")
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", help="Namespace of all workflows, or one for each in order."),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="INPUT=SOURCE",
        help="Replace an input of spec.inputs: by a file, an address, or RUN/OUTPUT. Repeatable.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PARAM=VALUE",
        help="Set a parameter of spec.params. Its type decides how VALUE is read. Repeatable.",
    ),
]
