"""The Python client of FlowMesh.

::

    import flowmesh_sdk as fm

    run = fm.load("workflow.yaml", params={"samples": 4}).run()
    answers = run.result()["answers"]
    print(answers.head(), run.receipt().paid_usd)

See docs/python.md.
"""

from typing import TYPE_CHECKING, Any

from flowmesh_sdk.bill import NamespaceBill
from flowmesh_sdk.client import Client, connect
from flowmesh_sdk.errors import (
    ApiError,
    FabricUnavailableError,
    FileError,
    FlowMeshError,
    InvalidArgumentError,
    InvalidWorkflowError,
    MissingFileError,
    MissingOutputError,
    NoFabricError,
    RunFailedError,
    RunTimeoutError,
)
from flowmesh_sdk.forecast import Forecast
from flowmesh_sdk.model_folder import ModelFolder
from flowmesh_sdk.outputs import RunStep
from flowmesh_sdk.receipt import Receipt
from flowmesh_sdk.rows import Rows
from flowmesh_sdk.run import Run
from flowmesh_sdk.workflow import Workflow, load

if TYPE_CHECKING:
    from flowmesh_sdk.async_client import AsyncClient, AsyncRun

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncRun",
    "Client",
    "FabricUnavailableError",
    "FileError",
    "FlowMeshError",
    "Forecast",
    "InvalidArgumentError",
    "InvalidWorkflowError",
    "MissingFileError",
    "MissingOutputError",
    "ModelFolder",
    "NamespaceBill",
    "NoFabricError",
    "Receipt",
    "Rows",
    "Run",
    "RunFailedError",
    "RunStep",
    "RunTimeoutError",
    "Workflow",
    "connect",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in ("AsyncClient", "AsyncRun"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowmesh_sdk import async_client  # noqa: PLC0415 - loads asyncio, and most need none

    return getattr(async_client, name)
