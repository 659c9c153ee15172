"""Options that several commands take, declared once."""

from pathlib import Path
from typing import Annotated

import typer

StateDirOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="The folder of the fabric: store, owner, workers' caches.",
        envvar="FLOWMESH_STATE_DIR",
        show_default=".flowmesh",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]
_RUN = "Uid, the beginning of one, or name."
RunOption = Annotated[str, typer.Option("--run", help=_RUN, show_default="the latest")]
RunArgument = Annotated[str, typer.Argument(help=_RUN, show_default="the latest")]
FilesArgument = Annotated[
    list[Path], typer.Argument(help="Workflows and cache policies; - is standard input.")
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", help="Tenant: one for all workflows, or one each in order."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PARAM=VALUE", help="Overrides spec.params; may be repeated."),
]
