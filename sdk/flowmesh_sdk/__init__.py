"""The Python client of FlowMesh.

::

    import flowmesh_sdk as fm

    run = fm.load("workflow.yaml", params={"samples": 4}).run()
    answers = run.result()["answers"]
    print(answers.head(), run.receipt().paid_usd)

See docs/python.md.
"""

from flowmesh_sdk.async_client import AsyncClient, AsyncRun
from flowmesh_sdk.client import Client, connect
from flowmesh_sdk.errors import (
    ApiError,
    FabricUnavailableError,
    FlowMeshError,
    InvalidWorkflowError,
    NoFabricError,
    RunFailedError,
    RunTimeoutError,
)
from flowmesh_sdk.forecast import Forecast
from flowmesh_sdk.model_folder import ModelFolder
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
    "FlowMeshError",
    "Forecast",
    "InvalidWorkflowError",
    "ModelFolder",
    "NoFabricError",
    "Receipt",
    "Rows",
    "Run",
    "RunFailedError",
    "RunTimeoutError",
    "Workflow",
    "connect",
    "load",
]
