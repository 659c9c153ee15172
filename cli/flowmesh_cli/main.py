"""The entry point of ``fmesh``: assembles the commands and maps errors to exit codes.

The console script and ``python -m flowmesh_cli`` call :func:`main`. ``commands/`` declares the
commands; each imports its implementation when it runs.
"""

import sys
from typing import Annotated

import typer

from flowmesh_cli.commands import (
    artifacts,
    doctor,
    explain,
    fabric,
    keys,
    request_log,
    runs,
    services,
    serving,
    simulation,
    tokens,
    withhold,
    workflows,
)
from flowmesh_cli.errors import CliError, answer
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.help_panels import show_panels
from flowmesh_cli.interrupts import end_quickly, leave_at_second
from flowmesh_cli.usage_errors import explain_usage

app = typer.Typer(
    name="fmesh",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run LLM workflows, and compute each step that runs share only once.",
)
for group in (
    runs,
    serving,
    services,
    tokens,
    workflows,
    simulation,
    explain,
    artifacts,
    fabric,
    withhold,
    keys,
    request_log,
    doctor,
):
    group.add_to(app)
show_panels(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            typer.echo(version("flowmesh-fabric"))
        except PackageNotFoundError:
            typer.echo("not installed; run from a checkout")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run LLM workflows, and compute each step that runs share only once."""
    del version


def main(name: str = "fmesh") -> None:
    """Runs the command line and exits with a :class:`flowmesh_cli.exit_codes.ExitCode`."""
    leave_at_second()
    try:
        code = app(prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):  # before the command started
        code = ExitCode.INTERRUPTED
    except Exception as e:
        # A usage error; its class is typer's own and has no public name.
        usage_message = getattr(e, "format_message", None)
        if usage_message is None:
            raise
        explain_usage(e)
        e.show()  # type: ignore[attr-defined]
        code = ExitCode.USAGE
        if "--json" in sys.argv:
            remedy = f"{name} COMMAND --help lists its arguments and options"
            answer(CliError(usage_message(), code, remedy=remedy), code)
    if code == ExitCode.INTERRUPTED:
        end_quickly(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
