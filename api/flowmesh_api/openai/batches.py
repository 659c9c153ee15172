"""Batches of OpenAI's API."""

import msgspec


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
