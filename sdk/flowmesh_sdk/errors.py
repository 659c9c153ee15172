"""Errors: each says the place, the reason and the remedy."""

import contextlib
from collections.abc import Iterator, Sequence

from flowmesh_api.v1.problems import Problem


class FlowMeshError(Exception):
    """The base of all errors of this package.

    Attributes:
        message: the reason.
        where: the place: a field, a file, a path of the API; may be empty.
        remedy: what to do; may be empty.
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        self.message, self.where, self.remedy = message, where, remedy
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{message}" + (f"\n  {remedy}" if remedy else ""))


class NoFabricError(FlowMeshError):
    """No fabric runs here, and none can be started, or none that could run the workflow."""


class FabricUnavailableError(FlowMeshError):
    """The fabric does not answer; the same call may succeed later, since runs go on without it."""


class ApiError(FlowMeshError):
    """The control plane refused a request.

    Attributes:
        status: of HTTP: 401 (token), 402 (budget or deadline), 403, 404, 409, 410 (content is
            gone), 429, 503, 507 (store full).
        code: ``damaged-record``, ``store-access``, ``quota`` or empty.
    """

    def __init__(
        self, message: str, *, status: int, code: str = "", where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message, where=where, remedy=remedy)
        self.status, self.code = status, code


class InvalidWorkflowError(FlowMeshError):
    """A workflow has mistakes.

    Attributes:
        problems: all of them, each with its field and, for a file or text, its line.
        where: the file; for other workflows the field of the first mistake.
    """

    def __init__(self, problems: Sequence[Problem], *, file: str = "") -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem_line(p, file) for p in problems))
        # Not in the text, whose lines have their places.
        first = next((p.path for p in self.problems if p.path), "")
        self.where = file or first or "workflow"
        self.remedy = "correct what `problems` lists, then load or submit the workflow again"


class RunFailedError(FlowMeshError):
    """A run failed or was cancelled.

    Attributes:
        uid: of the run.
        phase: ``Failed`` or ``Cancelled``.
        step: that failed; may be empty.
        reason: the kind of failure, such as ``out-of-memory``.
        log: the last lines that the step printed.
    """

    def __init__(
        self,
        message: str,
        *,
        uid: str,
        phase: str,
        step: str,
        reason: str,
        remedy: str,
        log: Sequence[str],
    ) -> None:
        self.uid, self.phase, self.step, self.reason, self.log = uid, phase, step, reason, log
        lines = "".join(f"\n  | {line}" for line in log)
        where = f"run {uid}, step {step}" if step else f"run {uid}"
        text = message or f"it has ended as {phase}"
        super().__init__(f"{text}{lines}", where=where, remedy=remedy)


class RunTimeoutError(FlowMeshError, TimeoutError):
    """A run has not ended in the given time; it goes on."""


class FileError(FlowMeshError, OSError):
    """A file or folder of this machine cannot be read or written."""


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder of this machine does not exist."""


class MissingOutputError(FlowMeshError, KeyError):
    """A run has no output of this name."""

    __str__ = FlowMeshError.__str__  # a KeyError's is the repr of its message


class InvalidArgumentError(FlowMeshError, ValueError):
    """An argument is not one of the values that are allowed.

    Attributes:
        problems: what a fabric found, where it refused values of ``params``: these, and the
            mistakes of the workflow.
    """

    def __init__(
        self, message: str, *, where: str = "", remedy: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message, where=where, remedy=remedy)
        self.problems = tuple(problems)


@contextlib.contextmanager
def file_errors(path: object, remedy: str) -> Iterator[None]:
    """Raises the operating system's errors as :class:`FileError`, with the path and a remedy."""
    try:
        yield
    except OSError as e:
        if isinstance(e, FlowMeshError):
            raise
        kind = MissingFileError if isinstance(e, FileNotFoundError) else FileError
        raise kind(e.strerror or str(e), where=str(path), remedy=remedy) from e


def problem_line(problem: Problem, file: str) -> str:
    """Returns a problem with its place, in a file if there is one."""
    place = f"line {problem.line}, column {problem.column}: " if problem.line else ""
    if file and problem.line:
        place = f"{file}:{problem.line}:{problem.column}: "
    return f"{place}{problem.path}: {problem.message}" if problem.path else place + problem.message
