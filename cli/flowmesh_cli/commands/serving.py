"""Declares ``serve``, ``call`` and ``load``."""

from typing import Annotated

import typer

from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption, StateDirOption

PANEL = "Serve"
ModelArgument = Annotated[str, typer.Argument(help="Name of a served model.", metavar="MODEL")]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for name, command in (("serve", serve), ("call", call), ("load", load)):
        app.command(name, rich_help_panel=PANEL)(guarded(command))


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Models: built-in names, hf://, https:// and s3:// addresses, or local folders,"
            " such as ./model. Files of services, such as ask.yaml."
        ),
    ],
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the services.")
    ] = "",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Load the models in this dtype, e.g. float32.")
    ] = "",
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings", help="Serve embeddings in place of chats and completions."),
    ] = False,
    tool_parser: Annotated[
        str, typer.Option("--tool-parser", help="Parser of the models' tool calls, by vLLM's name.")
    ] = "",
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter",
            metavar="NAME=PATH_OR_OUTPUT",
            help="Add a LoRA adapter, which requests choose by MODEL:NAME: a folder, such as"
            " ./german, or WORKFLOW/OUTPUT. Repeatable.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of local workers.")] = 1,
    port: Annotated[int, typer.Option("--port", help="Port for clients, 0 for any.")] = 0,
    state_dir: StateDirOption = None,
    json: JsonOption = False,
) -> None:
    """Serve models and services to clients until Ctrl-C."""
    from flowmesh_cli.verbs.serve import serve as run  # noqa: PLC0415
    from flowmesh_cli.verbs.service_offers import ServeOptions  # noqa: PLC0415

    run(
        ServeOptions(
            tuple(models), namespace, dtype, embeddings, tool_parser, tuple(adapter or ())
        ),
        workers=workers,
        port=port,
        state_dir=state_dir,
        as_json=json,
    )


def call(
    model: ModelArgument,
    text: Annotated[
        str, typer.Argument(help="The prompt. For a service with stages, the request as JSON.")
    ],
    *,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Most tokens of the answer.")
    ] = 256,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Sampling temperature. 0 is greedy.")
    ] = None,
    state_dir: StateDirOption = None,
    json: JsonOption = False,
) -> None:
    """Send a prompt to a served model, and stream its answer."""
    from flowmesh_cli.verbs.call import call as run  # noqa: PLC0415

    run(
        model,
        text,
        max_tokens=max_tokens,
        temperature=temperature,
        state_dir=state_dir,
        as_json=json,
    )


def load(
    model: ModelArgument,
    *,
    rate: Annotated[float, typer.Option("--rate", min=0.01, help="Requests per second.")] = 1.0,
    duration: Annotated[
        str, typer.Option("--for", help="How long to send, e.g. 60s or 5m.")
    ] = "10s",
    text: Annotated[
        str,
        typer.Option("--text", help="The prompt of each request. For a service with stages, JSON."),
    ] = "Hello!",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Most tokens of the answer.")
    ] = 16,
    state_dir: StateDirOption = None,
    json: JsonOption = False,
) -> None:
    """Send requests to a served model at a rate."""
    from flowmesh_cli.verbs.load import load as run  # noqa: PLC0415

    run(
        model,
        rate=rate,
        duration=duration,
        text=text,
        max_tokens=max_tokens,
        state_dir=state_dir,
        as_json=json,
    )
