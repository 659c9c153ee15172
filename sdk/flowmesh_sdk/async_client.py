"""The client and its runs for programs with an event loop.

Each request is one of the ordinary client's, in a thread, on a connection that no other request
uses meanwhile. Where a task is cancelled, its request goes on until it is answered, and the answer
is dropped.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.lineage import LineageWalk, RowOrigins
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepLogLine, Uploaded
from flowmesh_api.v1.why import Explanation, Why
from flowmesh_sdk.bill import Grouping, NamespaceBill
from flowmesh_sdk.client import Client, Submittable
from flowmesh_sdk.errors import FabricUnavailableError
from flowmesh_sdk.forecast import Forecast
from flowmesh_sdk.outputs import NamedOutputs, RunStep
from flowmesh_sdk.receipt import Receipt
from flowmesh_sdk.run import POLL_S, RECONNECT_S, Run, require_success, timed_out

T = TypeVar("T")


class AsyncClient:
    """The methods of :class:`Client`, each of them awaited.

    ::

        async with fm.AsyncClient(fm.connect()) as client:
            run = await client.submit(fm.load("workflow.yaml"))
            print(await run.result())
    """

    def __init__(self, client: Client) -> None:
        """Uses the fabric of a client, which it closes with itself.

        Args:
            client: of :func:`connect`, which may start a fabric and so takes some seconds.
        """
        self._client = client
        self._idle: list[Client] = []
        self._lock = threading.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        """Returns itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Closes the connections."""
        self.close()

    def close(self) -> None:
        """Closes the connections; runs go on. May be called more than once."""
        with self._lock:
            self._closed = True
            self._close_idle()
        self._client.close()

    async def validate(self, workflow: Submittable) -> list[Problem]:
        """As :meth:`Client.validate`."""
        return await self.call(lambda c: c.validate(workflow))

    async def plan(self, workflow: Submittable) -> Forecast:
        """As :meth:`Client.plan`. Its ``run`` and ``submit`` block; :meth:`submit` does not."""
        forecast = await self.call(lambda c: c.plan(workflow))
        return Forecast(forecast.document, lambda: self._client.submit(workflow))

    async def submit(self, workflow: Submittable, *, resume: bool = True) -> "AsyncRun":
        """As :meth:`Client.submit`."""
        return AsyncRun(self, await self.call(lambda c: c.submit(workflow, resume=resume)))

    async def run(self, workflow: Submittable, *, timeout_s: float | None = None) -> "AsyncRun":
        """As :meth:`Workflow.run`, without a progress display; a cancelled task leaves the run."""
        submitting = asyncio.create_task(self.submit(workflow))
        try:
            run = await asyncio.shield(submitting)
            return await run.wait(timeout_s=timeout_s)
        except asyncio.CancelledError:
            await (await submitting).leave()
            raise

    async def get_run(self, run: str) -> "AsyncRun":
        """As :meth:`Client.get_run`."""
        return AsyncRun(self, await self.call(lambda c: c.get_run(run)))

    async def list_runs(self, namespace: str = "") -> list[RunSummary]:
        """As :meth:`Client.list_runs`."""
        return await self.call(lambda c: c.list_runs(namespace))

    async def bill(
        self,
        *,
        namespace: str = "",
        since: date | str = "",
        until: date | str = "",
        by: Grouping = "day",
    ) -> NamespaceBill:
        """As :meth:`Client.bill`."""
        return await self.call(
            lambda c: c.bill(namespace=namespace, since=since, until=until, by=by)
        )

    async def upload(
        self, path: str | Path, kind: str = "dataset", *, namespace: str = ""
    ) -> Uploaded:
        """As :meth:`Client.upload`."""
        return await self.call(lambda c: c.upload(path, kind, namespace=namespace))

    async def call(self, ask: Callable[[Client], T]) -> T:
        """Returns what a function returns for a client that nothing else uses; it may block."""
        return await asyncio.to_thread(self._call, ask)

    def _call(self, ask: Callable[[Client], T]) -> T:
        with self._lock:
            client = self._idle.pop() if self._idle else self._client.clone()
        try:
            return ask(client)
        finally:
            with self._lock:
                self._idle.append(client)
                if self._closed:
                    self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


class AsyncRun:
    """The methods of :class:`Run`, each of them awaited; awaiting the run itself waits for its end.

    ``output`` asks nothing, and is not awaited.

    Attributes:
        uid: names it.
    """

    def __init__(self, client: AsyncClient, run: Run) -> None:
        """Asks nothing yet."""
        self._client = client
        self._run = run
        self.uid = run.uid

    async def status(self) -> RunStatus:
        """As :meth:`Run.status`."""
        return await self._call(Run.status)

    async def watch(self) -> AsyncIterator[RunStatus]:
        """Yields its states as :meth:`Run.watch` does."""
        loop = asyncio.get_running_loop()
        last: RunStatus | None = None
        since_s = loop.time()
        while True:
            try:
                status = await self.status()
            except FabricUnavailableError:
                if loop.time() - since_s > RECONNECT_S:
                    raise
            else:
                since_s = loop.time()
                if status != last:
                    yield status
                if status.phase in ENDED_PHASES:
                    return
                last = status
            await asyncio.sleep(POLL_S)

    async def wait(self, *, timeout_s: float | None = None) -> Self:
        """Returns this run when it has ended successfully; raises as :meth:`Run.wait`."""
        try:
            async with asyncio.timeout(timeout_s):
                states = [status async for status in self.watch()]
        except TimeoutError:
            phase = (await self.status()).phase
            raise timed_out(self.uid, timeout_s or 0.0, phase) from None
        require_success(states[-1])
        return self

    async def result(self, *, timeout_s: float | None = None) -> NamedOutputs:
        """As :meth:`Run.result`. To read ``Rows`` blocks: use ``asyncio.to_thread(rows.head)``."""
        await self.wait(timeout_s=timeout_s)
        return await self._call(Run.result)

    async def partial(self) -> NamedOutputs:
        """As :meth:`Run.partial`."""
        return await self._call(Run.partial)

    async def step(self, path: str) -> RunStep:
        """As :meth:`Run.step`."""
        return await self._call(lambda run: run.step(path))

    def output(self, name: str) -> dict[str, str]:
        """As :meth:`Run.output`."""
        return self._run.output(name)

    async def receipt(self) -> Receipt:
        """As :meth:`Run.receipt`."""
        return await self._call(Run.receipt)

    async def why(self, step: str) -> Why:
        """As :meth:`Run.why`."""
        return await self._call(lambda run: run.why(step))

    async def explain(self, step: str) -> Explanation:
        """As :meth:`Run.explain`."""
        return await self._call(lambda run: run.explain(step))

    async def logs(self, step: str = "") -> list[StepLogLine]:
        """As :meth:`Run.logs`."""
        return await self._call(lambda run: run.logs(step))

    @overload
    async def lineage(
        self, output: str, *, depth: int = 0, rows: Literal[False] = False
    ) -> LineageWalk: ...
    @overload
    async def lineage(self, output: str, *, depth: int = 0, rows: Literal[True]) -> RowOrigins: ...
    async def lineage(
        self, output: str, *, depth: int = 0, rows: bool = False
    ) -> LineageWalk | RowOrigins:
        """As :meth:`Run.lineage`."""
        if rows:
            return await self._call(lambda run: run.lineage(output, depth=depth, rows=True))
        return await self._call(lambda run: run.lineage(output, depth=depth))

    async def cancel(self, *, reason: str = "") -> RunStatus:
        """As :meth:`Run.cancel`."""
        return await self._call(lambda run: run.cancel(reason=reason))

    async def delete(self) -> None:
        """As :meth:`Run.delete`."""
        await self._call(Run.delete)

    async def leave(self) -> RunStatus:
        """As :meth:`Run.leave`."""
        return await self._call(Run.leave)

    def __await__(self) -> Generator[Any, Any, Self]:
        """Waits as :meth:`wait`."""
        return self.wait().__await__()

    def __repr__(self) -> str:
        """Shows its uid; asks the fabric nothing."""
        return f"<AsyncRun {self.uid}>"

    async def _call(self, ask: Callable[[Run], T]) -> T:
        return await self._client.call(lambda client: ask(client.same_run(self._run)))
