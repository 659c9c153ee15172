"""The Python client of FlowMesh.

::

    import flowmesh_sdk as fm

    run = fm.load("workflow.yaml", params={"samples": 4}).run()
    answers = run.result()["answers"]
    print(answers.head(), run.receipt().paid_usd)

See docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowmesh_sdk.async_client import AsyncClient, AsyncRun
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

_PLACES = {
    "AsyncClient": "async_client",
    "AsyncRun": "async_client",
    "NamespaceBill": "bill",
    "Client": "client",
    "connect": "client",
    **dict.fromkeys(
        (
            "ApiError",
            "FabricUnavailableError",
            "FileError",
            "FlowMeshError",
            "InvalidArgumentError",
            "InvalidWorkflowError",
            "MissingFileError",
            "MissingOutputError",
            "NoFabricError",
            "RunFailedError",
            "RunTimeoutError",
        ),
        "errors",
    ),
    "Forecast": "forecast",
    "ModelFolder": "model_folder",
    "RunStep": "outputs",
    "Receipt": "receipt",
    "Rows": "rows",
    "Run": "run",
    "Workflow": "workflow",
    "load": "workflow",
}
"""The module of each name. It is imported when the name is used: ``fmesh`` uses the connection
alone, and most programs no event loop."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
