"""Connects to a fabric, and does there what workflows and runs ask for."""

import os
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from flowmesh_api.v1 import routes
from flowmesh_api.v1.plan import Forecast as ForecastDocument
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import RunAccepted, RunSummary, Uploaded
from flowmesh_sdk import local_fabric
from flowmesh_sdk.bill import Grouping, NamespaceBill, read_charges
from flowmesh_sdk.cluster_workflows import ClusterWorkflows
from flowmesh_sdk.errors import (
    ApiError,
    FlowMeshError,
    InvalidArgumentError,
    InvalidWorkflowError,
    NoFabricError,
    file_errors,
)
from flowmesh_sdk.forecast import Forecast
from flowmesh_sdk.http.client import ApiConnection
from flowmesh_sdk.http.transports import ServerTransport
from flowmesh_sdk.local_inputs import local_inputs, local_path, missing_files, upload
from flowmesh_sdk.run import Run
from flowmesh_sdk.workflow_objects import submit_object

T = TypeVar("T")
SERVER, TOKEN, CA = "FLOWMESH_SERVER", "FLOWMESH_TOKEN", "FLOWMESH_CA"
_OF_THE_FILE = (400, 422)
"""Statuses of refusals for what is in a file."""
_WORKER_JOINS_S, _POLL_S = 30.0, 0.05


class Submittable(Protocol):
    """A workflow, as far as a client uses it."""

    @property
    def folder(self) -> Path:
        """Where relative paths of its inputs start."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Returns a copy of the document."""
        ...

    def invalid(self, problems: Iterable[Problem]) -> InvalidWorkflowError | InvalidArgumentError:
        """Returns the error for problems, with their lines where these are known."""
        ...


def connect(
    server: str = "",
    *,
    token: str | Callable[[], str] = "",
    ca: str = "",
    cluster: bool = False,
    context: str = "",
    state_dir: str | Path | None = None,
    namespace: str = "",
    start: bool = True,
) -> "Client":
    """Returns a client of the first fabric that there is.

    In this order: ``server``, or ``FLOWMESH_SERVER``; the fabric that runs on the state folder; a
    new one on it, which ends with this program.

    Args:
        server: a server's address, such as ``https://flowmesh.example.com:8470``.
        token: for a server: a token, or what returns the current one; ``FLOWMESH_TOKEN`` otherwise.
        ca: for a server: a PEM file of the authorities to trust, or ``FLOWMESH_CA``.
        cluster: whether the server is a cluster's, where runs are objects of Kubernetes: they are
            created with the rights of the kubeconfig's current context, or of the pod. Needs the
            extra ``[cluster]``.
        context: another context of the kubeconfig, for a cluster.
        state_dir: of a local fabric; by default that of ``FLOWMESH_STATE_DIR``, or ``.flowmesh``.
        namespace: of workflows that name none, and of the runs that are listed.
        start: whether to start a fabric where none runs.

    Raises:
        NoFabricError: there is none, and none can be started.
        FlowMeshError: the address, the token or the authorities cannot be used.
    """
    server = server or ("" if state_dir else os.environ.get(SERVER, ""))
    if cluster or context:
        return _on_cluster(server, token, ca, context, namespace)
    if server:
        given = token or os.environ.get(TOKEN, "")
        if not given:
            raise FlowMeshError(
                "the server needs a token",
                where=f"server {server}",
                remedy=f"pass token=…, or set {TOKEN}",
            )
        return Client(_connection(server, given, ca, namespace))
    folder = local_fabric.state_folder(state_dir)
    owner = local_fabric.running(folder)
    if owner is None and not start:
        raise NoFabricError(
            "no fabric is running on the state folder",
            where=str(folder),
            remedy="run `fmesh up` there, or name another folder with state_dir=…",
        )
    current = owner or local_fabric.start(folder)
    http = ApiConnection.at(current.url, current.token)
    http.namespace = namespace
    if owner is None:
        _await_worker(http)
    return Client(http)


def connect_for(workflow: Submittable) -> "Client":
    """Returns a client as :func:`connect`, of a fabric that can run the workflow if it is new.

    Raises:
        NoFabricError: no worker of this installation could run it; or as :func:`connect`.
    """
    state = local_fabric.state_folder()
    if not os.environ.get(SERVER) and local_fabric.running(state) is None:
        local_fabric.refuse_unrunnable(workflow.to_dict(), workflow.folder, state)
    return connect()


def _await_worker(http: ApiConnection) -> None:
    """Waits for the worker of a new fabric: a plan needs one to predict cost and time."""
    end = time.monotonic() + _WORKER_JOINS_S
    while not http.get(routes.WORKERS, list[dict[str, Any]]) and time.monotonic() < end:
        time.sleep(_POLL_S)


def _connection(
    server: str, token: str | Callable[[], str], ca: str, namespace: str
) -> ApiConnection:
    current = token if callable(token) else lambda: str(token)
    transport = ServerTransport(server, current, ca=ca or os.environ.get(CA, ""))
    return ApiConnection(server, transport, namespace=namespace)


def _on_cluster(
    server: str, token: str | Callable[[], str], ca: str, context: str, namespace: str
) -> "Client":
    if not server:
        raise FlowMeshError(
            "a cluster's gateway needs its address",
            where="connect()",
            remedy=f"pass it, or set {SERVER}; inside of the cluster it is"
            " https://flowmesh-gateway.flowmesh.svc:8470",
        )
    objects = ClusterWorkflows(context)
    given = token or os.environ.get(TOKEN, "") or objects.token
    return Client(_connection(server, given, ca, namespace or objects.namespace), objects)


class Client:
    """A connection to one fabric. It belongs to one thread; :meth:`clone` makes others.

    Attributes:
        namespace: of workflows that name none, and of the runs that are listed; empty for the
            user's own, and for the runs of all that the user may see.
    """

    def __init__(self, http: ApiConnection, objects: ClusterWorkflows | None = None) -> None:
        """Opens no connection yet; see :func:`connect`.

        Args:
            http: the control plane.
            objects: creates runs, where these are objects of a cluster.
        """
        self._http = http
        self._objects = objects

    @property
    def namespace(self) -> str:
        """See the class."""
        return self._http.namespace

    def __enter__(self) -> "Client":
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Closes the connection; runs go on. May be called more than once."""
        self._http.close()

    def clone(self) -> "Client":
        """Returns a client of the same fabric for another thread."""
        return Client(self._http.clone(), self._objects)

    def same_run(self, run: Run) -> Run:
        """Returns a run of another client of this fabric, on this one's connection."""
        return run.on(self._http)

    def validate(self, workflow: Submittable) -> list[Problem]:
        """Returns every mistake in a workflow; none where it would be accepted."""
        try:
            self.plan(workflow)
        except (InvalidWorkflowError, InvalidArgumentError) as e:
            return list(e.problems)
        return []

    def plan(self, workflow: Submittable) -> Forecast:
        """Uploads a workflow's local inputs and predicts what it would cost and take.

        Raises:
            InvalidWorkflowError: it has mistakes.
            InvalidArgumentError: values that it was given as ``params`` are not allowed.
            FlowMeshError: the fabric refuses it, or does not answer.
        """
        body = self._prepared(workflow)
        found = self._asked(workflow, routes.PLAN, ForecastDocument, body)
        return Forecast(found, lambda: self.submit(workflow))

    def submit(self, workflow: Submittable, *, resume: bool = True) -> Run:
        """Uploads a workflow's local inputs and starts it.

        Args:
            workflow: what to run.
            resume: whether an unfinished run of the same document is returned in place of a new
                one.

        Raises:
            InvalidWorkflowError: it has mistakes.
            InvalidArgumentError: values that it was given as ``params`` are not allowed.
            ApiError: with status 402, its budget or deadline cannot be met.
            FlowMeshError: the fabric refuses it for another reason, or does not answer.
        """
        if self._objects is not None:
            return self._created(workflow, self._objects, resume=resume)
        submitter = os.urandom(8).hex()
        body = {**self._prepared(workflow), "resume": resume, "submitter": submitter}
        accepted = self._asked(workflow, routes.RUNS, RunAccepted, body, check=True)
        return Run(self._http, accepted.uid, submitter=submitter)

    def get_run(self, run: str) -> Run:
        """Returns a run by its uid, the beginning of one, or its name (the latest of that name).

        Raises:
            ApiError: with status 404, there is none that the user may see.
        """
        found = Run(self._http, run)
        return Run(self._http, found.status().uid)

    def list_runs(self, namespace: str = "") -> list[RunSummary]:
        """Returns the runs that the user may see, the oldest first."""
        namespace = namespace or self.namespace
        return self._http.get(routes.RUNS, list[RunSummary], namespace=namespace)

    def bill(
        self,
        *,
        namespace: str = "",
        since: date | str = "",
        until: date | str = "",
        by: Grouping = "day",
    ) -> NamespaceBill:
        """Returns what the runs paid that the user may see.

        An attempt counts on the day in which it ended, in UTC.

        Args:
            namespace: only this one's; by default the client's, and all where it has none.
            since: the first day, such as ``2026-01-31``, or a date.
            until: the day after the last one.
            by: what has a line: ``day`` (of a namespace), ``namespace`` or ``run``.

        Raises:
            InvalidArgumentError: ``by`` is none of these.
            ApiError: with status 400, ``since`` or ``until`` is not a day.
        """
        namespace = namespace or self.namespace
        page = read_charges(self._http, namespace=namespace, since=since, until=until)
        return NamespaceBill(page, by)

    def upload(self, path: str | Path, kind: str = "dataset", *, namespace: str = "") -> Uploaded:
        """Uploads a file or folder, for use as an input by its ``reference``.

        Args:
            path: a file of rows for the kind ``dataset``, otherwise a folder.
            kind: ``dataset``, ``model`` or ``adapter``.
            namespace: that may use it; by default the client's.

        Raises:
            FileError: it cannot be read.
            FlowMeshError: the fabric refuses it, or does not answer.
        """
        with file_errors(path, "name a file or folder that this user may read"):
            return upload(self._http, Path(path), kind, namespace or self.namespace)

    def _created(self, workflow: Submittable, objects: ClusterWorkflows, *, resume: bool) -> Run:
        """Creates a run as an object."""
        body = self._prepared(workflow)
        try:
            accepted = submit_object(self._http, objects, **body, resume=resume)
        except InvalidWorkflowError as e:
            raise workflow.invalid(e.problems) from None
        return Run(self._http, accepted.uid)

    def _prepared(self, workflow: Submittable) -> dict[str, Any]:
        document = workflow.to_dict()
        if self.namespace:
            document.setdefault("metadata", {}).setdefault("namespace", self.namespace)
        namespace = document.get("metadata", {}).get("namespace", "default")
        problems = missing_files(document, workflow.folder)
        uploads: dict[str, str] = {}
        given = local_inputs(document.get("spec")) if not problems else ()
        for name, kind, text in given:
            path, where = local_path(text, workflow.folder), f"spec.inputs.{name}.{kind}"
            try:
                uploads[name] = upload(self._http, path, kind, namespace).reference
            except InvalidWorkflowError as e:
                problems += [Problem(where, p.message) for p in e.problems]
            except OSError as e:
                problems.append(Problem(where, f"{path}: {e.strerror or e}"))
            except ApiError as e:
                if e.status not in _OF_THE_FILE or not e.message:
                    raise
                remedy = f"; {e.remedy}" if e.remedy else ""
                problems.append(Problem(where, f"{e.where or path}: {e.message}{remedy}"))
        if problems:
            raise workflow.invalid(problems)
        return {"document": document, "uploads": uploads}

    def _asked(self, workflow: Submittable, path: str, kind: type[T], body: Any, **query: Any) -> T:
        try:
            return self._http.ask("POST", path, kind, query=query, document=body)
        except InvalidWorkflowError as e:
            raise workflow.invalid(e.problems) from None
