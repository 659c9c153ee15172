"""The target of a command: a state folder of this machine, or a cluster."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from flowmesh_cli.help_panels import WHERE_PANEL
from flowmesh_cli.options import StateDirOption

SYSTEM_NAMESPACE = "flowmesh"


@dataclass(frozen=True, slots=True)
class Target:
    """The fabric that a command uses, from its options.

    Attributes:
        state_dir: the state folder of a local fabric; None for the default.
        cluster: True for the cluster of the current context, False for a local fabric; None lets
            the other options decide.
        context: the kubeconfig's context; empty for the current one.
        kubeconfig: the kubeconfig's file; None for ``KUBECONFIG`` or the default.
        server: the gateway's address; empty connects through the API server.
        ca: certificates to trust for the gateway.
        system_namespace: the operator's namespace.
        namespace: the namespace whose runs are used; empty for the context's, or all on a local
            fabric.
        every_namespace: whether to use all namespaces that the user may see.
    """

    state_dir: Path | None = None
    cluster: bool | None = None
    context: str = ""
    kubeconfig: Path | None = None
    server: str = ""
    ca: Path | None = None
    system_namespace: str = SYSTEM_NAMESPACE
    namespace: str = ""
    every_namespace: bool = False

    @property
    def is_cluster(self) -> bool:
        """Whether the target is a cluster."""
        if self.cluster is None:
            return bool(self.context or self.server)
        return self.cluster


HERE = Target()

_OPTIONS: dict[str, Any] = {
    "state_dir": StateDirOption,
    "cluster": Annotated[
        bool | None,
        typer.Option(
            "--cluster/--local",
            help="Use the cluster of the current kubeconfig context, or this machine.",
            envvar="FLOWMESH_CLUSTER",
            rich_help_panel=WHERE_PANEL,
            show_default="--local",
        ),
    ],
    "context": Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Use the cluster of this kubeconfig context.",
            envvar="FLOWMESH_CONTEXT",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
    "kubeconfig": Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="Path of the kubeconfig.", rich_help_panel=WHERE_PANEL),
    ],
    "server": Annotated[
        str,
        typer.Option(
            "--server",
            metavar="URL",
            help="Address of the cluster's gateway, if you can reach it directly.",
            envvar="FLOWMESH_SERVER",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
    "ca": Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            help="Certificates to trust for the gateway.",
            envvar="FLOWMESH_CA",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
    "system_namespace": Annotated[
        str,
        typer.Option(
            "--system-namespace",
            help="Namespace of the cluster's operator.",
            envvar="FLOWMESH_SYSTEM_NAMESPACE",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
}
_NAMESPACE: dict[str, Any] = {
    "namespace": Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Use the runs of this namespace.",
            show_default="context's",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
    "every_namespace": Annotated[
        bool,
        typer.Option(
            "--all-namespaces",
            "-A",
            help="Use the runs of all namespaces that you may see.",
            rich_help_panel=WHERE_PANEL,
        ),
    ],
}


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a target to a command, which gets them as ``place``.

    A command that declares ``namespace`` itself keeps its own option.
    """
    signature = inspect.signature(command, eval_str=True)
    if "place" not in signature.parameters:
        return command
    own_parameters = [p for p in signature.parameters.values() if p.name != "place"]
    has_namespace = any(p.name == "namespace" for p in own_parameters)
    options = _OPTIONS if has_namespace else {**_NAMESPACE, **_OPTIONS}
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(HERE, name), annotation=kind
        )
        for name, kind in options.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        place = Target(**{name: given.pop(name) for name in options})
        command(**given, place=place)

    last = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own_parameters if p.name == "json"
    ]
    first = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own_parameters if p.name != "json"
    ]
    run.__signature__ = signature.replace(parameters=[*first, *added, *last])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*first, *added, *last]}
    return run
