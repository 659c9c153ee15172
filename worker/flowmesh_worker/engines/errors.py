"""The failures that these engines choose, in the words a user can act on."""

from flowmesh_core.errors import AttemptError, Failure, FailureKind

_DETAIL_CHARS = 2000


def bad_input(message: str, remedy: str) -> AttemptError:
    """The user's rows, parameters or model are at fault; another attempt ends the same way."""
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))


def unplaceable(message: str, remedy: str) -> AttemptError:
    """This worker cannot honour what the step asks for; a worker of another kind might."""
    return AttemptError(Failure(FailureKind.UNPLACEABLE, message, remedy))


def out_of_memory(message: str, remedy: str) -> AttemptError:
    """The model or its cache does not fit into what the host may use."""
    return AttemptError(Failure(FailureKind.OUT_OF_MEMORY, message, remedy))


def host_crashed(message: str, cause: BaseException) -> AttemptError:
    """The instance is broken: its host must end, and the actions go elsewhere."""
    return AttemptError(
        Failure(FailureKind.HOST_CRASHED, message, detail=str(cause)[-_DETAIL_CHARS:])
    )


def engine_failed(message: str, cause: BaseException) -> AttemptError:
    """The library failed on this one request; the instance goes on."""
    detail = f"{type(cause).__name__}: {cause}"
    return AttemptError(Failure(FailureKind.ENGINE, message, detail=detail[-_DETAIL_CHARS:]))
