"""Arguments that name runs, steps, outputs and engines, and complete these names in a shell."""

import contextlib
from collections.abc import Callable
from typing import Annotated

import typer

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

_RUN = "Uid, beginning of a uid, or name of a run."
_STEP = "Path of the step, such as sample or tune[lr=1]."


def run_and_step(named: str, step: str, run: str) -> tuple[str, str]:
    """Returns run and step of ``RUN STEP``, ``STEP`` or ``RUN/STEP``.

    Args:
        named: the first argument: a run where a second one follows, else a step.
        step: the second argument, or empty.
        run: the option ``--run``, or empty.

    Raises:
        CliError: the run is named twice.
    """
    if not step:
        return run, named
    if run:
        raise CliError(
            f"the run is named twice: {named} and {run}",
            ExitCode.USAGE,
            where="--run",
            remedy="write RUN STEP, or STEP --run RUN",
        )
    return named, step


def _completed(read: str) -> Callable[[typer.Context, str], list[str]]:
    """Returns a completion by a function of ``verbs.complete``, which is loaded when it is used.

    One that fails completes nothing: its error would be written into the line that is typed.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with contextlib.suppress(Exception):
            from flowmesh_cli.verbs import complete as known  # noqa: PLC0415

            names: list[str] = getattr(known, read)(ctx.params)
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


RunArgument = Annotated[
    str,
    typer.Argument(help=_RUN, show_default="the latest", autocompletion=_completed("runs")),
]
RunsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN...", help=_RUN, show_default=False, autocompletion=_completed("runs")
    ),
]
RunOption = Annotated[
    str,
    typer.Option("--run", help=_RUN, show_default="the latest", autocompletion=_completed("runs")),
]
RunOrStepArgument = Annotated[
    str,
    typer.Argument(
        metavar="STEP|RUN",
        help="Step of the latest run, RUN/STEP, or the run of the step that follows.",
        autocompletion=_completed("runs_and_steps"),
    ),
]
StepArgument = Annotated[
    str, typer.Argument(metavar="STEP", help=_STEP, autocompletion=_completed("steps"))
]
StepOption = Annotated[
    str, typer.Option("--step", help="Show this step only.", autocompletion=_completed("steps"))
]
OutputArgument = Annotated[
    str,
    typer.Argument(
        help="Uid, beginning of a uid, or name of a run, or RUN/OUTPUT for one of its outputs.",
        show_default="the latest",
        autocompletion=_completed("runs_and_outputs"),
    ),
]
EngineArgument = Annotated[
    str,
    typer.Argument(
        help="Show the ports and parameters of this engine.", autocompletion=_completed("engines")
    ),
]
