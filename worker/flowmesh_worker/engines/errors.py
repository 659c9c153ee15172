"""The failures that the shipped engines raise, with a remedy for the user."""

from flowmesh_core.errors import AttemptError, Failure, FailureKind

_DETAIL_CHARS = 2000


def bad_input(message: str, remedy: str = "") -> AttemptError:
    """The user's rows, parameters or model are wrong; another attempt fails in the same way."""
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))


def unplaceable(message: str, remedy: str) -> AttemptError:
    """This worker cannot do what the step requests; another kind of worker might."""
    return AttemptError(Failure(FailureKind.UNPLACEABLE, message, remedy))


def out_of_memory(message: str, remedy: str) -> AttemptError:
    """The model or its cache does not fit into the host's memory limit."""
    return AttemptError(Failure(FailureKind.OUT_OF_MEMORY, message, remedy))


def host_crashed(message: str, cause: BaseException) -> AttemptError:
    """The instance is broken: its host exits, and its actions run elsewhere."""
    return AttemptError(
        Failure(FailureKind.HOST_CRASHED, message, detail=str(cause)[-_DETAIL_CHARS:])
    )


def engine_failed(message: str, cause: BaseException) -> AttemptError:
    """The library failed on this request only; the instance continues."""
    detail = f"{type(cause).__name__}: {cause}"
    return AttemptError(Failure(FailureKind.ENGINE, message, detail=detail[-_DETAIL_CHARS:]))
