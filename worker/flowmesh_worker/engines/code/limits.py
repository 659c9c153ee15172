"""What the user's code may use, as it is told to the process that runs it."""

import msgspec


class SandboxRequest(msgspec.Struct, frozen=True):
    """What the runner reads from its standard input.

    Attributes:
        code: the module, ``function`` the name to call.
        inputs: rows by input name, ``args`` further keyword arguments.
        cpu_s, memory_mib, file_mib: limits.
        jail: an empty directory to build the code's file system in.
        wanted_uid: the user to become where that is possible.
        own_user: whether the process that starts the code has a user for such code alone.
    """

    code: str
    function: str
    inputs: dict[str, list[dict[str, object]]]
    args: dict[str, object]
    cpu_s: int
    memory_mib: int
    file_mib: int = 64
    jail: str = ""
    wanted_uid: int = 0
    own_user: bool = False


class SandboxResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runner writes.

    Attributes:
        error: what went wrong, or empty; ``remedy`` what to change; ``traceback`` are lines of the
            user's code alone.
        lacks: protections that this machine did not give.
    """

    rows: list[dict[str, object]] = []
    metrics: dict[str, object] = {}
    error: str = ""
    remedy: str = ""
    traceback: str = ""
    lacks: list[str] = []
