"""The request log: entries with the field names of Kubernetes' ``audit.k8s.io/v1`` Event.

The level is always Metadata: who asked for what, when, and how it was answered; no content.
"""

import msgspec

API_VERSION = "audit.k8s.io/v1"
LEVEL = "Metadata"


class RequestUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who made a request; without a name where no token was accepted."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a request was about.

    Attributes:
        resource: the first segment of the path below ``/v1``, such as ``runs``; or ``workers``,
            ``secrets``.
        namespace: the namespace that the request was authorized for; empty for none or several.
        name: of the object, such as a run's uid.
        subresource: the rest of the path, such as ``cancel``.
    """

    resource: str
    namespace: str = ""
    name: str = ""
    api_version: str = ""
    subresource: str = ""


class ResponseStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a request was answered: the status of HTTP, and for workers the reason."""

    code: int
    message: str = ""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="Event"):
    """One entry of the request log.

    Attributes:
        audit_id: unique; the two entries of one request have the same.
        stage: ``RequestReceived`` (written before the request is carried out),
            ``ResponseStarted`` (a download) or ``ResponseComplete``.
        request_uri: the path, without the query.
        verb: the verb that the user needs, such as ``create``.
        annotations: more of it; ``flowmesh.dev/count`` where the entry stands for several requests
            between the two times.
    """

    api_version: str = msgspec.field(name="apiVersion")
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: RequestUser
    request_received_timestamp: str = msgspec.field(name="requestReceivedTimestamp")
    stage_timestamp: str = msgspec.field(name="stageTimestamp")
    source_ips: tuple[str, ...] = msgspec.field(name="sourceIPs", default=())
    object_ref: ObjectReference | None = msgspec.field(name="objectRef", default=None)
    response_status: ResponseStatus | None = msgspec.field(name="responseStatus", default=None)
    annotations: dict[str, str] = {}


class RequestLogPage(msgspec.Struct, frozen=True):
    """``GET /v1/request-log``.

    Attributes:
        entries: oldest first.
        next: the ``after`` of the next page.
        is_last: whether nothing more was written when the page was made.
        bad: keys of segments that are left out, because their signatures are not valid.
    """

    entries: tuple[LogEntry, ...]
    next: str
    is_last: bool
    bad: tuple[str, ...] = ()


class RequestLogCheck(msgspec.Struct, frozen=True):
    """``GET /v1/request-log/check``.

    Attributes:
        segments: how many were valid, up to the first that is not.
        entries: in those.
        lost: entries that could not be written, as the segments say.
        bad: the key of the first segment that is not valid, or is missing; empty where all are.
        reason: why.
    """

    segments: int
    entries: int
    lost: int
    bad: str = ""
    reason: str = ""
