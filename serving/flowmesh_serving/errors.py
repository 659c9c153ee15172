"""The errors of a router, in OpenAI's shape, each with the time after which to try again."""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_core.catalog.adapter_ports import adapted_model
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import EMBEDDINGS

RETRY_AFTER_S = {429: "1", 503: "5"}
_SERVER_ERROR = "server_error"
NO_REPLICA = "no_replica"
_LOST, _DEADLINE = "replica_lost", "deadline_exceeded"
_CODES_OF_FAILURES = frozenset({_LOST, _DEADLINE})
"""Of calls that a replica had begun."""
_FAILED, _REFUSED, _INVALID = "failed", "refused", "invalid"
CANCELLED = "cancelled"
_CANCELLED_CODE = "request_cancelled"
_TOO_MANY, _SERVER_ERRORS = 429, 500


UNREFUSED = frozenset({_FAILED, CANCELLED})
"""Outcomes of requests that ended with an error and were not refused."""


def outcome_of(error: OpenAiError, *, had_begun: bool = False) -> str:
    """Returns the outcome of a request that ended with an error.

    Args:
        error: of the router.
        had_begun: whether its stages had begun; then it has failed, whatever the error.
    """
    if error.code == _CANCELLED_CODE:
        return CANCELLED
    if had_begun or error.code in _CODES_OF_FAILURES:
        return _FAILED
    is_callers = error.status < _SERVER_ERRORS and error.status != _TOO_MANY
    return _INVALID if is_callers else _REFUSED


def unauthorized() -> OpenAiError:
    """Returns the error of a request without a valid token."""
    return OpenAiError(
        "Incorrect API key provided: expected the token of a service as a bearer token.",
        code="invalid_api_key",
        status=401,
    )


def may_not_call(user: str, namespace: str) -> OpenAiError:
    """Returns the error of a user of Kubernetes without the right to call."""
    return OpenAiError(
        f"User '{user[:200]}' may not call flowmeshservices.flowmesh.dev in namespace"
        f" '{namespace}': ask an administrator for a role with this right. The header"
        " OpenAI-Project names another namespace.",
        code="permission_denied",
        status=403,
    )


def too_many_unknown_tokens() -> OpenAiError:
    """Returns the error of a token that is not reviewed now, as too many others were."""
    return OpenAiError(
        "Rate limit reached: too many requests with tokens that are not known yet. Try again"
        " later.",
        type="requests",
        code="rate_limit_exceeded",
        status=429,
    )


def caller_not_reviewed() -> OpenAiError:
    """Returns the error of a token that cannot be reviewed now."""
    return OpenAiError(
        "The control plane does not answer, so your token cannot be checked. Try again later.",
        type=_SERVER_ERROR,
        code="caller_not_reviewed",
        status=503,
    )


def unknown_model(model: str) -> OpenAiError:
    """Returns the error of a model that does not exist for the caller."""
    return OpenAiError(
        f"The model '{model[:80]}' does not exist or you do not have access to it.",
        param="model",
        code="model_not_found",
        status=404,
    )


def unknown_adapter(model: str, name: str, adapters: Collection[str]) -> OpenAiError:
    """Returns the error of an adapter that the service does not have."""
    listed = ", ".join(adapted_model(model, one) for one in adapters)
    has = f"expected {listed}, or" if adapters else "the service has none, expected"
    return OpenAiError(
        f"The model '{model}' has no adapter '{name[:80]}': {has} '{model}' for no adapter.",
        param="model",
        code="model_not_found",
        status=404,
    )


def path_not_served(path: str, model: str, served: Collection[str]) -> OpenAiError:
    """Returns the error of a model that answers other endpoints."""
    option, uses = " --embeddings", "llm.embed` with `implementation: vllm, pooling: auto"
    if path != EMBEDDINGS:
        option, uses = "", "llm.generate"
    return OpenAiError(
        f"The model '{model}' does not answer {path}: it answers {', '.join(sorted(served))}."
        f" `fmesh serve MODEL{option}` serves it for {path}, and so does a component of a"
        f" FlowMeshService that has `uses: {uses}`.",
        param="model",
        code="model_not_found",
        status=404,
    )


def no_tool_parser() -> OpenAiError:
    """Returns the error of a request whose tool calls would not be understood."""
    return OpenAiError(
        "'tools' need a parser of the model's tool calls: serve the model with"
        " `fmesh serve MODEL --tool-parser NAME` (a FlowMeshService has no such field), or set"
        " 'tool_choice' to 'none'.",
        param="tool_choice",
        code="no_tool_parser",
    )


def invoke_path(service: str) -> str:
    """Returns where a service with stages takes requests."""
    return f"/v1/services/{service}:invoke"


def has_stages(service: str) -> OpenAiError:
    """Returns the error of a request of OpenAI's API to a service with stages."""
    return OpenAiError(
        f"The service {service} has stages: send its requests to {invoke_path(service)}.",
        param="model",
        code="model_not_found",
        status=404,
    )


def no_priorities(service: str) -> OpenAiError:
    """Returns the error of a priority that would not be honoured."""
    return OpenAiError(
        f"The service {service} has stages, which have no priorities: leave the header"
        " X-Flowmesh-Priority out.",
        param="X-Flowmesh-Priority",
        code="unsupported_parameter",
    )


def unknown_service(service: str) -> OpenAiError:
    """Returns the error of a service that does not exist for the caller, or has no stages."""
    return OpenAiError(
        f"The service '{service[:160]}' does not exist, has no stages, or you do not have access"
        " to it.",
        code="service_not_found",
        status=404,
    )


def unknown_request(request_id: str) -> OpenAiError:
    """Returns the error of a request that this router does not know, or another tenant sent."""
    return OpenAiError(
        f"There is no request '{request_id[:80]}' of your namespace at this service that this"
        " router knows: it has those in flight that came to it, and the last that have ended since"
        " it was started. Other routers have their own.",
        code="request_not_found",
        status=404,
    )


def request_cancelled() -> OpenAiError:
    """Returns the error of a request that its id was used to cancel.

    No status of HTTP says so; clients send no request again that ended with this one.
    """
    return OpenAiError("The request was cancelled.", code=_CANCELLED_CODE, status=499)


def key_reused() -> OpenAiError:
    """Returns the error of an idempotency key that another request has used."""
    return OpenAiError(
        "This Idempotency-Key was used for another request: expected the same path, body and"
        " Accept header, byte by byte. Use a new key for a new request.",
        param="Idempotency-Key",
        code="idempotency_key_reused",
        status=422,
    )


def missing_field(name: str) -> OpenAiError:
    """Returns the error of a request without a field that a stage reads."""
    return OpenAiError(
        f"Missing required field: '{name}'. A stage of the service reads it.",
        param=name,
        code="missing_field",
    )


def admission_refused(why: str) -> OpenAiError:
    """Returns the error of a request that admission refuses.

    Args:
        why: the verdict.
    """
    text, code = {
        "service-full": ("it is at its limit of requests in flight", "rate_limit_exceeded"),
        "tenant-share": (
            "your namespace has its full share of requests in flight",
            "rate_limit_exceeded",
        ),
        "too-late": ("the reply would come too late", "overloaded"),
    }[why]
    return OpenAiError(
        f"The service is busy: {text}. Try again later.", type="requests", code=code, status=429
    )


def body_too_large(limit: int) -> OpenAiError:
    """Returns the error of a body over the limit."""
    return OpenAiError(
        f"The request's body is too large: expected at most {limit} bytes.",
        code="request_too_large",
        status=413,
    )


def too_many_requests(what: str, limit: int) -> OpenAiError:
    """Returns the error of a caller that has as many requests in flight as it may have."""
    return OpenAiError(
        f"Rate limit reached: {what} may have {limit} requests in flight. Try again later.",
        type="requests",
        code="rate_limit_exceeded",
        status=429,
    )


def replicas_full() -> OpenAiError:
    """Returns the error where a service has as many requests as it takes."""
    return OpenAiError(
        "The model is overloaded: it is at its limit of requests. Try again later.",
        type="requests",
        code="overloaded",
        status=429,
    )


def no_replica(model: str) -> OpenAiError:
    """Returns the error where no replica takes calls."""
    return OpenAiError(
        f"No replica of the model '{model}' is ready. Try again later.",
        type=_SERVER_ERROR,
        code=NO_REPLICA,
        status=503,
    )


def no_whole_group(service: str, group: str, components: Iterable[str]) -> OpenAiError:
    """Returns the error where no worker has replicas of all components of an affinity group."""
    return OpenAiError(
        f"No worker has ready replicas of {', '.join(components)} of the service '{service}', which"
        f" affinity '{group}' keeps together. Try again later.",
        type=_SERVER_ERROR,
        code=NO_REPLICA,
        status=503,
    )


def lost_replica() -> OpenAiError:
    """Returns the error of a call whose replica ended."""
    return OpenAiError(
        "The replica that ran the request has ended. Send the request again.",
        type=_SERVER_ERROR,
        code=_LOST,
        status=503,
    )


def deadline_exceeded() -> OpenAiError:
    """Returns the error of a call that took too long."""
    return OpenAiError(
        "The request took longer than its timeout.",
        type=_SERVER_ERROR,
        code=_DEADLINE,
        status=504,
    )


def body_too_slow(limit_s: float) -> OpenAiError:
    """Returns the error of a body that did not arrive in time."""
    return OpenAiError(
        f"The request's body took too long: expected all of it within {limit_s:g} s.",
        code="request_timeout",
        status=408,
    )


def malformed_request(status: int, problem: str) -> OpenAiError:
    """Returns the error of bytes that are no HTTP request."""
    return OpenAiError(
        f"The request is not valid HTTP: {problem[:200]}", code="invalid_http", status=status
    )


def internal_error() -> OpenAiError:
    """Returns the error of a defect of the router."""
    return OpenAiError(
        "The router failed on the request.", type=_SERVER_ERROR, code="internal", status=500
    )


def reply_impossible(problem: FlowMeshError) -> OpenAiError:
    """Returns the error where a reply cannot be made of the values of stages."""
    return OpenAiError(
        f"The reply cannot be made: {problem}", type=_SERVER_ERROR, code="reply", status=500
    )


def answer_no_text(field: str) -> OpenAiError:
    """Returns the error of a reply whose answer to a chat has another type."""
    return OpenAiError(
        f"The reply cannot be made: the value of reply.{field} is not a string.",
        type=_SERVER_ERROR,
        code="reply",
        status=500,
    )


def unreadable_answer(stage: str) -> OpenAiError:
    """Returns the error of a stream whose events are not those of OpenAI's API."""
    return OpenAiError(
        f"The answer of stage {stage} cannot be read. Send the request again.",
        type=_SERVER_ERROR,
        code="unreadable_answer",
        status=502,
    )


def response_of(error: OpenAiError) -> web.Response:
    """Returns the response for an error."""
    headers = {}
    if error.status in RETRY_AFTER_S:
        headers["Retry-After"] = RETRY_AFTER_S[error.status]
    return web.Response(
        body=error_body(error),
        status=error.status,
        content_type="application/json",
        headers=headers,
    )


def error_body(error: OpenAiError) -> bytes:
    """Returns the body of the response for an error."""
    return msgspec.json.encode(_as_text(error.body()))


def _as_text(value: dict[str, Any]) -> dict[str, Any]:
    """Returns an error object as Unicode text: it may quote a path or a header of any bytes."""
    return {
        name: _as_text(v) if isinstance(v, dict) else v and str(v).encode(errors="replace").decode()
        for name, v in value.items()
    }
