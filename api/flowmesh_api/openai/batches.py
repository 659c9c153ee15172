"""Batches of OpenAI's API."""

import msgspec

from flowmesh_api.v1.plan import Forecast


class CreateBatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /openai/v1/batches``.

    Attributes:
        completion_window: any duration, such as ``24h`` or ``90m``.
        metadata: up to 16 strings; ``budget_usd`` bounds what the batch may cost.
    """

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


class PlanBatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /openai/v1/batches/plan``."""

    input_file_id: str
    endpoint: str


class BatchQuote(msgspec.Struct, frozen=True):
    """What a batch would cost and take.

    Attributes:
        completion_window: ``now`` for a start at once, else a window, such as ``24h``.
        nanousd: expected cost, in billionths of a dollar.
        seconds: expected time.
        is_met: whether the batch is expected to end within the window.
    """

    completion_window: str
    nanousd: int
    seconds: float
    is_met: bool


class BatchPlan(msgspec.Struct, frozen=True):
    """The response to ``POST /openai/v1/batches/plan``.

    Attributes:
        requests: lines that are requests; ``wrong`` those that are not.
        forecast: of the run that the batch would be.
        quotes: for a start now, and for windows of one hour and 24 hours.
    """

    input_file_id: str
    endpoint: str
    requests: int
    wrong: int
    forecast: Forecast
    quotes: tuple[BatchQuote, ...]
    object: str = "batch.plan"


class BatchError(msgspec.Struct, frozen=True):
    """Why a batch failed; ``line`` is that of the input file, from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(msgspec.Struct, frozen=True):
    """All reasons why a batch failed."""

    data: tuple[BatchError, ...]
    object: str = "list"


class RequestCounts(msgspec.Struct, frozen=True):
    """Lines of a batch: all, those with a response of status 200, and the others that ended."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchObject(msgspec.Struct, frozen=True):
    """A batch.

    Attributes:
        status: ``validating``, ``failed``, ``in_progress``, ``finalizing``, ``completed``,
            ``expired``, ``cancelling`` or ``cancelled``.
        run_id: the run of the batch, for ``fmesh``; empty while it is validated.
    """

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = RequestCounts()
    metadata: dict[str, str] | None = None
    run_id: str = ""
    object: str = "batch"


class BatchList(msgspec.Struct, frozen=True):
    """A page of batches, the latest first."""

    data: tuple[BatchObject, ...]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None
    object: str = "list"
