"""OpenAI's errors for requests of which a stage has failed."""

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import StageFailed
from flowmesh_serving.errors import (
    deadline_exceeded,
    internal_error,
    lost_replica,
    replicas_full,
)

_CODE_CHARS_MAX = 64
"""Of a code: records of requests keep it."""


class _EngineErrorBody(msgspec.Struct):
    message: str = ""
    type: str = "server_error"
    param: str | None = None
    code: str | int | None = None


class _EngineError(msgspec.Struct):
    error: _EngineErrorBody


_errors = msgspec.json.Decoder(_EngineError)


def error_of(failed: StageFailed) -> OpenAiError:
    """Returns the error for a failure that a hub, or this router, reports."""
    match failed.outcome:
        case "deadline":
            return deadline_exceeded()
        case "full":
            return replicas_full()
        case "failed" if failed.body:
            try:
                found = decode(_errors, failed.body).error
            except msgspec.DecodeError:
                return internal_error()
            where = f" (stage {failed.stage})" if failed.stage else ""
            code = None if found.code is None else str(found.code)[:_CODE_CHARS_MAX]
            return OpenAiError(
                f"{found.message}{where}",
                param=found.param,
                code=code,
                status=failed.status,
                type=found.type,
            )
        case "failed":
            return internal_error()
        case _:
            return lost_replica()
