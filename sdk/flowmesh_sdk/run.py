"""A run: follow it, wait for it, and read what it made, cost and why."""

import sys
import time
from collections.abc import Iterator
from typing import Any, Literal, overload
from urllib.parse import quote

from flowmesh_api.v1.enums import ENDED_PHASES, Phase, StepState
from flowmesh_api.v1.lineage import LineageWalk, ProducedArtifact, RowOrigins
from flowmesh_api.v1.receipts import Receipt as ReceiptDocument
from flowmesh_api.v1.runs import DeletedRun, RunStatus, StepLogLine
from flowmesh_api.v1.why import Explanation, Why
from flowmesh_sdk.errors import (
    ApiError,
    FabricUnavailableError,
    MissingOutputError,
    RunFailedError,
    RunTimeoutError,
)
from flowmesh_sdk.html import table_html
from flowmesh_sdk.http.client import ApiConnection
from flowmesh_sdk.model_folder import ModelFolder
from flowmesh_sdk.outputs import NamedOutputs, Output, RunStep, StepPorts
from flowmesh_sdk.receipt import Receipt
from flowmesh_sdk.rows import Rows

POLL_S = 0.2
RECONNECT_S = 30.0
_NOT_FOUND = 404
_ENDED_STEPS = frozenset(
    {StepState.COMPLETED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED}
)


class Run:
    """A run on a fabric. It goes on without this object.

    Attributes:
        uid: names it.
    """

    def __init__(self, http: ApiConnection, uid: str, *, submitter: str = "") -> None:
        """Asks nothing yet; ``submitter`` names the submission, see ``SubmitBody``."""
        self._http = http
        self._submitter = submitter
        self.uid = uid

    def on(self, http: ApiConnection) -> "Run":
        """Returns the same run on another connection, for another thread."""
        return Run(http, self.uid, submitter=self._submitter)

    def status(self) -> RunStatus:
        """Returns its state now, with that of each step."""
        return self._http.get(f"/v1/runs/{self.uid}", RunStatus)

    def watch(self) -> Iterator[RunStatus]:
        """Yields its state whenever that has changed, the last time when it has ended.

        It waits up to 30 s for a fabric that has stopped answering.

        Raises:
            FabricUnavailableError: the fabric did not answer for longer.
        """
        last: RunStatus | None = None
        since = time.monotonic()
        while True:
            try:
                status = self.status()
            except FabricUnavailableError:
                if time.monotonic() - since > RECONNECT_S:
                    raise
            else:
                since = time.monotonic()
                if status != last:
                    yield status
                if status.phase in ENDED_PHASES:
                    return
                last = status
            time.sleep(POLL_S)

    def wait(self, *, timeout_s: float | None = None, progress: bool | None = None) -> "Run":
        """Returns this run when it has ended successfully.

        Args:
            timeout_s: raise ``RunTimeoutError`` after so many seconds; the run goes on.
            progress: whether to write a line to standard error for each step that ends; by default
                where that is a terminal.

        Raises:
            RunFailedError: it failed or was cancelled.
            RunTimeoutError: it has not ended in time.
            FabricUnavailableError: the fabric did not answer for 30 s.
        """
        shows = sys.stderr.isatty() if progress is None else progress
        end = None if timeout_s is None else time.monotonic() + timeout_s
        shown: set[str] = set()
        for status in self.watch():
            if shows:
                _show(status, shown)
            if status.phase in ENDED_PHASES:
                require_success(status)
                return self
            if end is not None and time.monotonic() > end:
                break
        raise timed_out(self.uid, timeout_s or 0.0, status.phase)

    def wait_or_cancel(
        self, *, timeout_s: float | None = None, progress: bool | None = None
    ) -> "Run":
        """Waits as :meth:`wait`; Ctrl-C leaves the run as :meth:`leave` does."""
        try:
            return self.wait(timeout_s=timeout_s, progress=progress)
        except KeyboardInterrupt:
            self.leave()
            raise

    def result(self, *, timeout_s: float | None = None) -> NamedOutputs:
        """Waits until it has ended, and returns its outputs by name; raises as :meth:`wait`."""
        self.wait(timeout_s=timeout_s)
        return self._outputs(self.status(), partial=False)

    def partial(self) -> NamedOutputs:
        """Returns what is published so far of its outputs, also of a run that has not ended."""
        return self._outputs(self.status(), partial=True)

    def step(self, path: str) -> RunStep:
        """Returns a step with what it has made so far, such as ``run.step("sft").adapter``.

        Args:
            path: its name, with the values of a matrix: ``tune[lr=1e-5]``.

        Raises:
            MissingOutputError: the run has no such step.
        """
        status = self.status()
        step = next((s for s in status.steps if s.path == path), None)
        if step is None:
            raise MissingOutputError(
                f"run {self.uid} has no step {path!r}",
                where="step()",
                remedy=f"it has {', '.join(s.path for s in status.steps)}",
            )
        made = self._http.get(f"/v1/runs/{self.uid}/made", list[ProducedArtifact])
        return RunStep(
            path,
            step.state,
            StepPorts({m.port: self._made(m) for m in made if m.step == path}),
        )

    def output(self, name: str) -> dict[str, str]:
        """Returns an output as an input of another workflow, which reads it by its content."""
        return {"output": f"{self.uid}/{name}"}

    def receipt(self) -> Receipt:
        """Returns what it paid, for which work, and what sharing saved it."""
        return Receipt(self._http.get(f"/v1/runs/{self.uid}/receipt", ReceiptDocument))

    def why(self, step: str) -> Why:
        """Returns why a step is as it is: its attempts, hits, and where it ran."""
        return self._http.get(f"/v1/runs/{self.uid}/why", Why, step=step)

    def explain(self, step: str) -> Explanation:
        """Returns which parts of a step's identity made it a hit or not."""
        return self._http.get(f"/v1/runs/{self.uid}/explain", Explanation, step=step)

    def logs(self, step: str = "") -> list[StepLogLine]:
        """Returns what a step's engines printed; of all steps where none is named."""
        return self._http.get(f"/v1/runs/{self.uid}/logs", list[StepLogLine], step=step)

    @overload
    def lineage(
        self, output: str, *, depth: int = 0, rows: Literal[False] = False
    ) -> LineageWalk: ...
    @overload
    def lineage(self, output: str, *, depth: int = 0, rows: Literal[True]) -> RowOrigins: ...
    def lineage(
        self, output: str, *, depth: int = 0, rows: bool = False
    ) -> LineageWalk | RowOrigins:
        """Returns what an output (or ``step.port``) was made from.

        Args:
            output: its name.
            depth: how many derivations to follow; 0 for all.
            rows: whether to return, chunk by chunk, the rows that its rows came from.
        """
        query: dict[str, Any] = {"name": output, "depth": depth or None}
        path = f"/v1/runs/{self.uid}/lineage"
        if rows:
            return self._http.get(f"{path}/rows", RowOrigins, **query)
        return self._http.get(path, LineageWalk, **query)

    def cancel(self, *, reason: str = "") -> RunStatus:
        """Cancels it for all who submitted it; results that are published stay."""
        return self._cancel({"reason": reason})

    def delete(self) -> None:
        """Deletes it, once it has ended: its status, logs, lineage and receipt cannot be read then.

        Results that others use stay, and bills go on with what it paid. Deleting it once more does
        nothing.

        Raises:
            ApiError: with status 409, it has not ended: ``cancel`` it first.
        """
        try:
            self._http.ask("DELETE", f"/v1/runs/{self.uid}", DeletedRun)
        except ApiError as e:
            if e.status != _NOT_FOUND:
                raise

    def leave(self) -> RunStatus:
        """Cancels it, unless others submitted the same document and still want it."""
        return self._cancel({"reason": "its program was interrupted", "submitter": self._submitter})

    def _cancel(self, body: dict[str, str]) -> RunStatus:
        return self._http.ask("POST", f"/v1/runs/{self.uid}/cancel", RunStatus, document=body)

    def _outputs(self, status: RunStatus, *, partial: bool) -> NamedOutputs:
        return NamedOutputs(
            (name, self._output(name, described, partial=partial))
            for name, described in status.outputs.items()
        )

    def _output(self, name: str, described: dict[str, Any] | None, *, partial: bool) -> Output:
        if described is None and not partial:
            return None
        if described and described.get("revoked"):
            raise ApiError("its content was revoked", status=410, where=f"output {name}")
        kind = (described or {}).get("kind", "dataset")
        count = None if partial else (described or {}).get("rows")
        return self._content(name, kind, count, partial=partial)

    def _made(self, artifact: ProducedArtifact) -> Output | ApiError:
        name = f"{artifact.step}.{artifact.port}"
        try:
            return self._content(name, artifact.kind, artifact.rows)
        except ApiError as e:
            return e

    def _content(
        self, name: str, kind: str, count: int | None, *, partial: bool = False
    ) -> Rows | ModelFolder | dict[str, Any]:
        path = f"/v1/runs/{self.uid}/outputs/{quote(name, safe='')}"
        if kind == "metrics":
            values: dict[str, Any] = self._http.get(path, dict)
            return values
        if kind == "dataset":
            return Rows(self._http, path, count=count, partial=partial)
        return ModelFolder(self._http, path, kind=kind)

    def __repr__(self) -> str:
        """Shows its uid; asks the fabric nothing."""
        return f"<Run {self.uid}>"

    def _repr_html_(self) -> str:
        status = self.status()
        rows = [
            {
                "step": s.path,
                "engine": s.engine,
                "state": s.state,
                "ran": s.executed,
                "reused": s.hits,
            }
            for s in status.steps
        ]
        title = f"{status.namespace}/{status.name} {status.uid}: {status.phase}"
        return table_html(rows, title=title)


def _show(status: RunStatus, shown: set[str]) -> None:
    for step in status.steps:
        if step.state in _ENDED_STEPS and step.path not in shown:
            shown.add(step.path)
            did = f", {step.executed} ran, {step.hits} reused" if step.executed + step.hits else ""
            print(f"{status.name}: {step.path} {step.state.lower()}{did}", file=sys.stderr)  # noqa: T201


def timed_out(uid: str, timeout_s: float, phase: str) -> RunTimeoutError:
    """Returns the error of a run that has not ended in time."""
    return RunTimeoutError(
        f"it has not ended within {timeout_s:g} s: {phase}",
        where=f"run {uid}",
        remedy="it goes on: call wait() again, or cancel() it",
    )


def require_success(status: RunStatus) -> None:
    """Raises ``RunFailedError`` where a run has ended otherwise."""
    if status.phase == Phase.SUCCEEDED:
        return
    raise RunFailedError(
        status.message,
        uid=status.uid,
        phase=status.phase,
        step=status.failed_step,
        reason=status.reason,
        remedy=status.remedy,
        log=[line for text in status.log for line in text.splitlines()],
    )
