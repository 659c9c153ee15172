"""What the API declares of one request: method, path, parameters, types of body and answer.

``operations`` has the table of all of them. The control plane registers its handlers by it, and
``openapi`` describes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

JSON = "application/json"
JSON_LINES = "application/x-ndjson"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
TAR = "application/x-tar"
BYTES = "application/octet-stream"
TEXT = "text/plain"


class Tag(StrEnum):
    """The groups of operations, each with a sentence that describes it."""

    RUNS = "runs", "Workflows that are submitted, and their runs."
    CONTENT = "content", "Uploads, and the outputs of runs."
    LINEAGE = "lineage", "What artifacts and rows were made from."
    AUDITS = "audits", "Actions that are executed again and compared; withheld and revoked results."
    FABRIC = "fabric", "Workers, engines, accounts, quotas and the cache."
    SERVICES = "services", "Models that stay loaded and answer requests."
    KEYS = "keys", "The master keys and the request log, for administrators."
    PROBES = "probes", "Health and metrics."

    description: str

    def __new__(cls, name: str, description: str) -> "Tag":
        """Returns a tag with its description."""
        tag = str.__new__(cls, name)
        tag._value_ = name
        tag.description = description
        return tag


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """A parameter after the question mark.

    Attributes:
        kind: its type; bool for a flag, which ``1`` and ``true`` set.
    """

    name: str
    summary: str
    kind: Any = str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request of the API.

    Attributes:
        path: with path parameters in braces.
        answer: the type of the answer, or of each line of it; bytes for content of any form.
        media: the media types that the answer may have.
        statuses: those of success.
        body: the type of the body; None for no body, bytes for content.
        body_media: the media type of the body.
        body_required: whether the body may not be empty.
        needs_token: whether a user's token is needed.
        excluded: why the description of the API leaves it out; empty where it does not.
    """

    method: str
    path: str
    tag: Tag = Tag.RUNS
    summary: str = ""
    answer: Any = None
    media: tuple[str, ...] = (JSON,)
    statuses: tuple[int, ...] = (200,)
    query: tuple[QueryParameter, ...] = ()
    body: Any = None
    body_media: str = JSON
    body_required: bool = True
    needs_token: bool = True
    excluded: str = ""

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


class OperationGroup:
    """Makes the operations of one tag, as the table writes them."""

    def __init__(self, tag: Tag) -> None:
        self._tag = tag

    def get(self, path: str, summary: str, answer: Any, *query: QueryParameter) -> Operation:
        """Returns a request that reads."""
        return self._operation("GET", path, summary, answer, query, None)

    def post(
        self, path: str, summary: str, answer: Any, *query: QueryParameter, body: Any = None
    ) -> Operation:
        """Returns a request that makes or changes something."""
        return self._operation("POST", path, summary, answer, query, body)

    def put(
        self, path: str, summary: str, answer: Any, *query: QueryParameter, body: Any = None
    ) -> Operation:
        """Returns a request that sets something."""
        return self._operation("PUT", path, summary, answer, query, body)

    def delete(self, path: str, summary: str, answer: Any, *query: QueryParameter) -> Operation:
        """Returns a request that deletes something."""
        return self._operation("DELETE", path, summary, answer, query, None)

    def _operation(
        self,
        method: str,
        path: str,
        summary: str,
        answer: Any,
        query: Iterable[QueryParameter],
        body: Any,
    ) -> Operation:
        return Operation(
            method=method,
            path=path,
            tag=self._tag,
            summary=summary,
            answer=answer,
            query=tuple(query),
            body=body,
        )
