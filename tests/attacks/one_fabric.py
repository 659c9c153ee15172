"""A fabric with a control plane in this process, without workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane

from flowmesh_control.settings import ControlSettings


@asynccontextmanager
async def fabric_at(root: Path, *, sandboxed: bool = False) -> AsyncIterator[Fabric]:
    """Starts a fabric over a directory below ``root``.

    Args:
        root: the directory.
        sandboxed: whether tenants' texts are evaluated in child processes, as in a cluster.
    """
    control = control_plane(root, settings=ControlSettings(sandboxed_evaluators=sandboxed))
    await control.start()
    try:
        async with ClientSession() as http:
            fabric = Fabric(root, control, http)
            yield fabric
            await asyncio.to_thread(fabric.close)
    finally:
        await control.stop()


def nothing_compiles_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every check and every compilation of a workflow in this process fail."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a workflow was read in the control plane")

    for name in ("read_object", "compile_workflow"):
        monkeypatch.setattr(f"flowmesh_control.evaluators.compilation.{name}", refused)
    monkeypatch.setattr("flowmesh_core.graph.cel.parse", refused)
    monkeypatch.setattr("flowmesh_core.graph.columns.undeclared", refused)
