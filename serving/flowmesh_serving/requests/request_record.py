"""One request of a caller, as its router remembers it: no word of what was asked or answered."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.stages.route import RequestRoute
from flowmesh_serving.errors import outcome_of, replicas_full, request_cancelled
from flowmesh_serving.requests.call_record import CallRecord

REQUEST_ID, RELEASE = "X-Flowmesh-Request", "X-Flowmesh-Release"
_RELEASES = re.compile(r"[A-Za-z0-9._-]{1,64}(, [A-Za-z0-9._-]{1,64})*")


@dataclass(slots=True, eq=False)
class RequestRecord:
    """A request with an id: it was admitted, and its body is valid.

    Attributes:
        request_id: as the header ``X-Flowmesh-Request`` says it.
        service: ``namespace/name``.
        tenant: the caller's namespace.
        path: that it was sent to, such as ``/v1/chat/completions``.
        abort: ends it; None once its outcome is settled.
        created_s: Unix time; ``began_s`` the same by a clock that never goes back.
        ended_by: makes the error that ends it early; None while it goes on. An error that was
            raised would keep the frames of the request, and its body, for as long as the record.
        has_begun: whether bytes of its answer have been sent.
        release: of the replicas that have it; empty while there are none, and of several, while one
            follows another, separated by commas.
        outcome: as the metrics count it; empty before the end.
        code: OpenAI's, of the error that it was answered; None for none.
        ended_s: as long after ``created_s`` as it took; 0 before the end.
        calls: of replicas, once it has ended and they are known.
        route: of a request to a service with stages, once it has ended.
    """

    request_id: str
    service: str
    tenant: str
    path: str
    abort: Callable[[], object] | None
    created_s: float = field(default_factory=time.time)
    began_s: float = field(default_factory=time.monotonic)
    ended_by: Callable[[], OpenAiError] | None = None
    has_begun: bool = False
    release: str = ""
    outcome: str = ""
    code: str | None = None
    ended_s: float = 0.0
    calls: tuple[CallRecord, ...] = ()
    route: RequestRoute | None = None

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What a response says of the request."""
        own = (REQUEST_ID, self.request_id)
        # A hub on a Unix socket names its replicas itself: no bytes of it become headers unread.
        if _RELEASES.fullmatch(self.release):
            return own, (RELEASE, self.release)
        return (own,)

    def cancel(self) -> None:
        """Ends the request, unless its outcome is settled. May be called more than once."""
        self._end_early(request_cancelled)

    def shed(self) -> None:
        """Ends the request, as one of higher priority has its place."""
        self._end_early(replicas_full)

    @property
    def can_be_shed(self) -> bool:
        """Whether its client can still get an error: no answer has begun or is settled."""
        return self.abort is not None and not self.has_begun

    def _end_early(self, ended_by: Callable[[], OpenAiError]) -> None:
        abort, self.abort = self.abort, None
        if abort is not None:
            error, self.ended_by = ended_by(), ended_by
            self.end(outcome_of(error), error.code)
            abort()

    def end(self, outcome: str, code: str | None) -> None:
        """Records how the request has ended; of several ends the first one counts."""
        self.abort = None
        if not self.outcome:
            self.outcome, self.code = outcome, code
            self.ended_s = self.created_s + time.monotonic() - self.began_s

    def settle(self) -> None:
        """Ends the time in which the request can be cancelled: its answer is complete."""
        self.abort = None


@contextlib.contextmanager
def cancellable(record: RequestRecord) -> Iterator[None]:
    """Ends the block where a caller cancels the request by its id, or where it is shed.

    Where its client is gone, or the router stops, the block ends as any task that is cancelled.

    Raises:
        OpenAiError: the request was ended early, and its client waits for an answer.
    """
    try:
        yield
    except asyncio.CancelledError:
        if record.ended_by is None or not _is_uncancelled():
            raise
        raise record.ended_by() from None


def _is_uncancelled() -> bool:
    """Takes a cancellation of this task back; returns whether it was the only one."""
    task = asyncio.current_task()  # no local of the block, which an error would keep with its task
    return task is not None and not task.uncancel()
