"""Makes entries of the request log; every text in them is bounded."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from flowmesh_api.v1.request_log import (
    API_VERSION,
    LEVEL,
    LogEntry,
    ObjectReference,
    RequestUser,
    ResponseStatus,
)

COUNT = "flowmesh.dev/count"
TEXT_CHARS = 256
URI_CHARS = 512
GROUPS_MAX = 16
ANNOTATIONS_MAX = 16
SWITCHING_PROTOCOLS = 101

RECEIVED, STARTED, COMPLETE = "RequestReceived", "ResponseStarted", "ResponseComplete"


def new_id() -> str:
    """Returns a new ``auditID``."""
    return str(uuid.uuid4())


def timestamp(seconds: float) -> str:
    """Returns a time as Kubernetes writes it, with microseconds."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def bounded(text: str, limit: int = TEXT_CHARS) -> str:
    """Returns a text, cut off where it is too long."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def make_entry(
    *,
    stage: str,
    verb: str,
    uri: str,
    user: RequestUser,
    received_s: float,
    at_s: float,
    source: str = "",
    about: ObjectReference | None = None,
    code: int = 0,
    message: str = "",
    annotations: Mapping[str, str] | None = None,
    audit_id: str = "",
) -> LogEntry:
    """Returns an entry.

    Args:
        stage: one of the constants above.
        verb: of the request.
        uri: the path, without the query.
        user: who asked; see :func:`make_user`.
        received_s: when the request came, Unix time in seconds.
        at_s: when it reached the stage.
        source: the address that it came from; empty where there is none.
        about: the object; see :func:`make_reference`.
        code: the status of the response; 0 before there is one.
        message: the reason, of workers.
        annotations: more of it.
        audit_id: of the request; a new one where empty.
    """
    some = list((annotations or {}).items())[:ANNOTATIONS_MAX]
    return LogEntry(
        api_version=API_VERSION,
        level=LEVEL,
        audit_id=audit_id or new_id(),
        stage=stage,
        request_uri=bounded(uri, URI_CHARS),
        verb=verb,
        user=user,
        request_received_timestamp=timestamp(received_s),
        stage_timestamp=timestamp(at_s),
        source_ips=(bounded(source),) if source else (),
        object_ref=about,
        response_status=ResponseStatus(code, bounded(message)) if code else None,
        annotations={bounded(name): bounded(value) for name, value in some},
    )


def make_user(name: str, uid: str = "", groups: tuple[str, ...] = ()) -> RequestUser:
    """Returns a user with bounded texts."""
    some = tuple(bounded(group) for group in groups[:GROUPS_MAX])
    return RequestUser(bounded(name), bounded(uid), some)


def make_reference(
    resource: str, *, namespace: str = "", name: str = "", subresource: str = ""
) -> ObjectReference:
    """Returns a reference with bounded texts."""
    return ObjectReference(resource, bounded(namespace), bounded(name), "v1", bounded(subresource))
