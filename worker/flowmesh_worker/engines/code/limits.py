"""The messages between the worker and the process that runs a user's code."""

import msgspec


class SandboxRequest(msgspec.Struct, frozen=True, tag="SandboxRequest"):
    """One call, read by the runner from its standard input.

    Attributes:
        code: the module's source; ``function`` is the function to call.
        inputs: rows by input name; ``args`` are further keyword arguments.
        cpu_s, memory_mib, file_mib: limits.
        jail: an empty directory for the code's file system.
        wanted_uid: the user id to change to, if that is possible; 0 for one of the call's own.
        own_user: whether the starting process already has a user id for users' code only.
        tenant: whose code it is.
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
    tenant: str = ""


class ProcessEnd(msgspec.Struct, frozen=True):
    """How the process of a call ended.

    Attributes:
        code: the exit code; negative for a signal.
        exceeded: what the call had more of than it may, if it was killed for that; else empty.
        lacks: protections around the process that this machine does not support.
    """

    code: int
    exceeded: str = ""
    lacks: tuple[str, ...] = ()


class SandboxResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one call, written by the runner.

    Attributes:
        error: what failed, or empty; ``remedy`` is what to change; ``traceback`` has only lines of
            the user's code.
        lacks: protections that this machine does not support.
        level: the level of the sandbox.
    """

    rows: list[dict[str, object]] = []
    metrics: dict[str, object] = {}
    error: str = ""
    remedy: str = ""
    traceback: str = ""
    lacks: list[str] = []
    level: str = ""
