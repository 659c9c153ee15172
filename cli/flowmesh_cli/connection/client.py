"""The client of the control API, with the errors and exit codes of ``fmesh``."""

from typing import Any, TypeVar

import msgspec

from flowmesh_api.v1.errors import QUOTA
from flowmesh_api.v1.version import API_VERSION
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.errors import SpecError
from flowmesh_sdk.http.client import ApiConnection, ErrorResponse

T = TypeVar("T")
UNMEETABLE, _FORBIDDEN = 402, 403
EXIT_CODES = {
    400: ExitCode.USAGE,
    401: ExitCode.NO_FABRIC,
    402: ExitCode.REFUSED,
    403: ExitCode.REFUSED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.REFUSED,
    410: ExitCode.NOT_FOUND,
    413: ExitCode.USAGE,
    422: ExitCode.USAGE,
    429: ExitCode.REFUSED,
    500: ExitCode.INTERNAL,
    503: ExitCode.NO_FABRIC,
}
"""Of an error response, by its status."""

_COMMANDS = {"GET /v1/services?namespace=": "`fmesh services list -n NAMESPACE`"}
"""What a remedy of the API calls by its route, as commands."""


class FabricUnavailableError(CliError):
    """The fabric does not answer; a command that joined it may find another owner."""

    def __init__(self, url: str, why: str, *, remedy: str = "") -> None:
        super().__init__(
            f"the fabric at {url} does not answer: {why}",
            ExitCode.NO_FABRIC,
            remedy=remedy or "start one with `fmesh up`, or run the same command again to resume",
        )


class UnmeetableError(CliError):
    """A budget or deadline cannot be met; the message begins with its field."""


class AccessDeniedError(CliError):
    """The user lacks the right to see or do that."""


class ApiClient(ApiConnection):
    """Sends requests to one control plane.

    Its methods raise ``SpecError`` where the server found problems in what was sent, and
    ``CliError`` otherwise.
    """

    def where_allowed(self, path: str, kind: type[T], **query: Any) -> T | None:
        """Reads a document as :meth:`get`; returns None where the user may not see it."""
        try:
            return self.get(path, kind, **query)
        except AccessDeniedError:
            return None

    def refused(self, refusal: ErrorResponse) -> Exception:
        """Returns the exception for an error response."""
        if refusal.problems:
            return SpecError(list(refusal.problems))
        # An error with a code is an expected one, whatever its status.
        known = refusal.code in ("", QUOTA)
        code = EXIT_CODES.get(refusal.status, ExitCode.FAILED) if known else ExitCode.FAILED
        denied = refusal.status == _FORBIDDEN and not refusal.code
        kind: type[CliError] = AccessDeniedError if denied else CliError
        if refusal.status == UNMEETABLE:
            kind = UnmeetableError
        remedy = refusal.remedy
        for route, command in _COMMANDS.items():
            remedy = remedy.replace(route, command)
        return kind(refusal.message, code, where=refusal.where, remedy=remedy)

    def misread(self, request: str, error: msgspec.DecodeError | str) -> Exception:
        """Returns the exception for an answer that is not of the expected kind."""
        return CliError(
            f"the answer is not what this version of fmesh expects: {error}",
            ExitCode.INTERNAL,
            where=request,
            remedy="compare `fmesh --version` with the version of the control plane, and check "
            f"that {self.url} is a control plane",
        )

    def lacking(self, version: str) -> Exception:
        """Returns the exception for a fabric whose version of the API this client cannot use."""
        return CliError(
            f"the fabric at {self.url} has version {version} of the API, this fmesh needs "
            f"{API_VERSION}",
            ExitCode.NO_FABRIC,
            remedy="upgrade the fabric (on this machine, stop it and start it with this "
            "installation), or install the fmesh of its release",
        )

    def incomplete(self, path: str) -> Exception:
        """Returns the exception for content of which a part did not come."""
        return CliError(
            "the content is incomplete: a part of it is missing or damaged in the store",
            ExitCode.FAILED,
            where=path,
            remedy="run the workflow again: missing results are computed again",
        )

    def unreachable(self, why: str) -> Exception:
        """Returns the exception for a fabric that does not answer."""
        return FabricUnavailableError(self.url, why)
