"""The messages between a component host and its resident sandbox."""

from enum import StrEnum

import msgspec

from flowmesh_core.protocol.serving import StoredInput


class ResultKind(StrEnum):
    """What became of a call."""

    OK = "ok"
    RAISED = "raised"
    BAD_INPUT = "bad-input"
    LOST = "lost"
    """A value that it names was kept by a process that has ended."""


class LoadedCode(msgspec.Struct, frozen=True, array_like=True):
    """The code of one component."""

    name: str
    code: str
    function: str
    batch_max: int


class BatchCall(msgspec.Struct, frozen=True, array_like=True):
    """A member of a batch; fields as of ``ComponentCall``."""

    body: bytes
    stored: dict[str, StoredInput]
    store_as: str
    wants_body: bool


class CallResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a member.

    Attributes:
        body: JSON, where it was wanted.
        error: why there is none, with the lines of the user's code.
    """

    kind: ResultKind
    body: bytes = b""
    error: str = ""


class LoadCode(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """The first message to the sandbox: the code."""

    components: tuple[LoadedCode, ...]


class RunBatch(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run these calls together."""

    component: str
    calls: tuple[BatchCall, ...]


class ForgetResults(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """Drop results that were kept."""

    keys: tuple[str, ...]


class CodeLoaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """The code is loaded, or not.

    Attributes:
        error: why it is not.
        lacks: protections that this machine does not support.
        level: of the sandbox.
    """

    error: str = ""
    lacks: tuple[str, ...] = ()
    level: str = ""


class BatchEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The results of a batch, in order."""

    results: tuple[CallResult, ...]


ToSandbox = LoadCode | RunBatch | ForgetResults
FromSandbox = CodeLoaded | BatchEnded
