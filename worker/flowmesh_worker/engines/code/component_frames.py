"""The messages between a component host and its resident sandbox."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import PassedValue, StoredInput
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.passed_values import StageBytes, receive_value, send_value
from flowmesh_worker.ipc.shared_value import SharedValue


class ResultKind(StrEnum):
    """What became of a call."""

    OK = "ok"
    RAISED = "raised"
    BAD_INPUT = "bad-input"
    LOST = "lost"
    """A value that it names was kept by a process that has ended."""
    UNFINISHED = "unfinished"
    """The call takes another step; its component iterates."""
    RESTART = "restart"
    """A step of several calls has failed, so each of them begins anew, alone."""
    STATE_LOST = "state-lost"
    """The process that had the state of the call has ended."""


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
    passed: dict[str, PassedValue] = {}
    wants_value: bool = False


class StepMember(msgspec.Struct, frozen=True, array_like=True):
    """A call that takes part in a step.

    Attributes:
        state: names its state, unique in the host.
        call: where it begins with this step; None where the process has its state.
    """

    state: str
    call: BatchCall | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a member.

    Attributes:
        body: JSON, where it was wanted.
        error: why there is none, with the lines of the user's code.
        value: for components of other hosts, where it was wanted and is not the body.
        remaining: steps that are left, where the call goes on and its component says so; else 0.
    """

    kind: ResultKind
    body: bytes = b""
    error: str = ""
    value: StageBytes = b""
    remaining: int = 0


class EncodedResult(msgspec.Struct, frozen=True, array_like=True):
    """A :class:`CallResult` on its way from the sandbox."""

    kind: ResultKind
    body: bytes
    error: str
    value: PassedValue | None
    remaining: int = 0


def sent_call(
    call: BatchCall, passed: Mapping[str, StageBytes], descriptors: DescriptorSocket
) -> BatchCall:
    """Returns a call for a message to the sandbox; its values are on their way.

    Raises:
        ProtocolError: a value cannot pass.
    """
    if not passed:
        return call
    for value in passed.values():
        if isinstance(value, SharedValue):
            _end_reuse(value)
    named = {n: send_value(v, descriptors, call.passed[n].path) for n, v in passed.items()}
    return msgspec.structs.replace(call, passed=named)


def _end_reuse(value: SharedValue) -> None:
    try:
        value.end_reuse()
    except OSError as error:
        raise ProtocolError(f"a value cannot pass to the sandbox: {error}") from None


def sent_result(result: CallResult, descriptors: DescriptorSocket) -> EncodedResult:
    """Returns a result for a message; its value is on its way, or it says why not."""
    if not result.value:
        return EncodedResult(result.kind, result.body, result.error, None, result.remaining)
    try:
        value = send_value(result.value, descriptors)
    except ProtocolError as error:
        return EncodedResult(ResultKind.RAISED, b"", error.message, None)
    return EncodedResult(result.kind, result.body, result.error, value)


def received_result(result: EncodedResult, descriptors: DescriptorSocket) -> CallResult:
    """Returns the result in a message, with its value.

    Raises:
        ProtocolError: what was passed is not a value that may be read.
    """
    value = b"" if result.value is None else receive_value(result.value, descriptors)
    return CallResult(result.kind, result.body, result.error, value, result.remaining)


class LoadCode(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """The first message to the sandbox: the code."""

    components: tuple[LoadedCode, ...]


class RunBatch(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Run these calls together."""

    component: str
    calls: tuple[BatchCall, ...]


class RunIteration(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """Run one step of these calls together."""

    component: str
    members: tuple[StepMember, ...]


class ForgetResults(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """Drop results, or states of calls, that were kept."""

    keys: tuple[str, ...]


class CodeLoaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """The code is loaded, or not.

    Attributes:
        error: why it is not.
        lacks: protections that this machine does not support.
        level: of the sandbox.
        iterating: names of the components that iterate.
    """

    error: str = ""
    lacks: tuple[str, ...] = ()
    level: str = ""
    iterating: tuple[str, ...] = ()


class BatchEnded(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The results of a batch or of a step, in order.

    Attributes:
        start_s: seconds in which calls of a step were begun; ``finish_s`` in which results of those
            that it finished were made.
    """

    results: tuple[EncodedResult, ...]
    start_s: float = 0.0
    finish_s: float = 0.0


ToSandbox = LoadCode | RunBatch | RunIteration | ForgetResults
FromSandbox = CodeLoaded | BatchEnded
