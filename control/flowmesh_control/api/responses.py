"""Responses of the API: values as JSON, errors with place, reason and remedy."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from flowmesh_api.v1.errors import DAMAGED_RECORD, QUOTA, STORE_ACCESS, ErrorDetails, ErrorDocument
from flowmesh_api.v1.problems import Problem
from flowmesh_control.api.connections import BodyPausedError
from flowmesh_control.errors import (
    AuthorizationUnavailableError,
    ConflictError,
    EvaluatorUnavailableError,
    ForbiddenError,
    NotFoundError,
    PlacementUnknownError,
    PlanRefusedError,
    QuotaExceededError,
    RateExceededError,
    UnknownUserError,
)
from flowmesh_control.public_errors import public_error
from flowmesh_core.decoding import decode
from flowmesh_core.errors import (
    ContentLimitError,
    DamagedRecordError,
    FlowMeshError,
    IdentityError,
    InvalidReferenceError,
    LostBlobError,
    RevokedContentError,
    SpecError,
    StoreAccessError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.openai.errors import OpenAiError

log = logging.getLogger("flowmesh.control.api")

_STATUS: tuple[tuple[type[FlowMeshError], int], ...] = (
    (SpecError, 422),
    (BodyPausedError, 408),
    (ContentLimitError, 400),
    (IdentityError, 422),
    (UnknownUserError, 401),
    (PlanRefusedError, 402),
    (ForbiddenError, 403),
    (QuotaExceededError, 403),
    (RateExceededError, 429),
    (InvalidReferenceError, 403),
    (NotFoundError, 404),
    (LostBlobError, 410),
    (RevokedContentError, 410),
    (ConflictError, 409),
    (StoreFullError, 507),
    (DamagedRecordError, 500),
    (StoreAccessError, 500),
    (StoreUnavailableError, 503),
    (AuthorizationUnavailableError, 503),
    (EvaluatorUnavailableError, 503),
    (PlacementUnknownError, 503),
    (FlowMeshError, 400),
)
_CODES: tuple[tuple[type[FlowMeshError], str], ...] = (
    (DamagedRecordError, DAMAGED_RECORD),
    (StoreAccessError, STORE_ACCESS),
    (QuotaExceededError, QUOTA),
    (RateExceededError, QUOTA),
)
"""Codes of errors whose status alone says too little."""


_body_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
OPENAI_PATHS = "/openai/"
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    507: "server_error",
}
_OPENAI_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


def json_response(value: Any, *, status: int = 200) -> web.Response:
    """Returns a response with a value as JSON."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def error_response(error: FlowMeshError) -> web.Response:
    """Returns a response with an error as JSON: an :class:`ErrorDocument`."""
    if isinstance(error, OpenAiError):
        return json_response(error.body(), status=error.status)
    status = next(s for kind, s in _STATUS if isinstance(error, kind))
    shown = public_error(error)
    if shown is not error:
        log.warning("%s: %s", type(error).__name__, error)
    response = _error(
        status,
        shown.message,
        shown.where,
        shown.remedy,
        problems=error.problems if isinstance(error, SpecError) else [],
        retry_after_s=error.retry_after_s if error.retryable else 0.0,
        code=next((code for kind, code in _CODES if isinstance(error, kind)), ""),
    )
    if isinstance(error, UnknownUserError):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _error(
    status: int,
    message: str,
    where: str = "",
    remedy: str = "",
    *,
    problems: Sequence[Problem] = (),
    retry_after_s: float = 0.0,
    code: str = "",
) -> web.Response:
    details = ErrorDetails(message, where, remedy, tuple(problems), code)
    response = json_response(ErrorDocument(details), status=status)
    if retry_after_s:
        response.headers["Retry-After"] = str(max(1, round(retry_after_s)))
    return response


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every exception into a response that names the problem and the remedy."""
    try:
        return await handler(request)
    except FlowMeshError as e:
        return _in_openais_shape(request, error_response(e))
    except RecursionError:
        response = _error(400, "the body is nested too deeply", "body", "flatten it")
        return _in_openais_shape(request, response)
    except web.RequestPayloadError:
        text = "the body is not encoded as its headers say"
        response = _error(400, text, "body", "send it with the Content-Encoding that it has")
        response.force_close()  # where the next request begins is not known
        return _in_openais_shape(request, response)
    except web.HTTPException as e:
        return _in_openais_shape(request, _error(e.status, e.reason, request.path))
    except ConnectionResetError:
        raise
    except Exception as e:
        log.exception("%s %s failed", request.method, request.path)
        response = _error(
            500,
            type(e).__name__,
            request.path,
            "this is an internal error; the control plane's log has the traceback",
        )
        return _in_openais_shape(request, response)


def _in_openais_shape(request: web.Request, response: web.Response) -> web.Response:
    """Returns an error as OpenAI's clients read it, where its path is one of theirs."""
    if not request.path.startswith(OPENAI_PATHS) or not isinstance(response.body, bytes):
        return response
    details = decode(_body_decoder, response.body)["error"]
    if "type" not in details:
        message = "; ".join(t for t in (details["message"], details["remedy"]) if t)
        kind = _OPENAI_TYPES.get(response.status, "invalid_request_error")
        error = OpenAiError(message, code=_OPENAI_CODES.get(response.status), type=kind)
        response.body = msgspec.json.encode(error.body())
    return response


def accepts(request: web.Request, media_type: str) -> bool:
    """Whether the header ``Accept`` names a media type; ``*/*`` does not."""
    named = request.headers.get("Accept", "").lower().split(",")
    return media_type in (part.partition(";")[0].strip() for part in named)


def flag(request: web.Request, name: str) -> bool:
    """Whether a query parameter is ``1``, ``true`` or ``yes``."""
    return request.query.get(name, "").lower() in ("1", "true", "yes")
