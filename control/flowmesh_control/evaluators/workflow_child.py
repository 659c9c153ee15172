"""The child that checks and compiles workflows."""

import pickle
from collections.abc import Callable, Iterator

import msgspec

from flowmesh_control.evaluators.compilation import CompilerSetup, checked, compiled, parsed
from flowmesh_control.evaluators.confinement import limit_processor_time
from flowmesh_control.evaluators.workflow_messages import (
    CheckWorkflow,
    CompilerFailed,
    EncodedPlanPart,
    PlanEnd,
    WorkflowRefused,
    WorkflowRequest,
    WorkflowTooLarge,
)
from flowmesh_core.decoding import decode
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.plan import Plan

PART_BYTES = 1 << 18
"""Size of the parts of a plan; one step may be larger."""
_decoder: msgspec.msgpack.Decoder[WorkflowRequest] = msgspec.msgpack.Decoder(WorkflowRequest)
_encoder = msgspec.msgpack.Encoder()


def load(setup: bytes) -> Callable[[bytes], Iterator[bytes]]:
    """Loads the library, and returns the function that answers a request.

    Args:
        setup: a pickled :class:`CompilerSetup` of the control plane, which is trusted.
    """
    # Imported here to be loaded before memory is bounded; the compiler imports them when needed.
    import flowmesh_core.graph.columns  # noqa: PLC0415
    import flowmesh_core.graph.condition_checks  # noqa: F401, PLC0415

    made = pickle.loads(setup)
    assert isinstance(made, CompilerSetup)

    def answer(data: bytes) -> Iterator[bytes]:
        try:
            yield from _reply(data, made)
        except SpecError as e:
            yield _encoder.encode(WorkflowRefused(e.problems))
        except (RecursionError, msgspec.DecodeError):
            yield _encoder.encode(WorkflowTooLarge(deep=True))
        except MemoryError:
            yield _encoder.encode(WorkflowTooLarge(deep=False))
        except Exception as e:  # the control plane decides what an unforeseen error is
            yield _encoder.encode(CompilerFailed(f"{type(e).__name__}: {e}"[:1000]))

    return answer


def _reply(data: bytes, setup: CompilerSetup) -> Iterator[bytes]:
    request = decode(_decoder, data)
    limit_processor_time(request.seconds)
    if isinstance(request, CheckWorkflow):
        yield _encoder.encode(checked(parsed(request.document, setup)))
    else:
        yield from _parts(compiled(request, setup, parsed(request.document, setup)))


def _parts(plan: Plan) -> Iterator[bytes]:
    part: list[msgspec.Raw] = []
    size_bytes = 0
    for step in plan.steps:
        encoded = _encoder.encode(step)
        if part and size_bytes + len(encoded) > PART_BYTES:
            yield _encoder.encode(EncodedPlanPart(part))
            part, size_bytes = [], 0
        part.append(msgspec.Raw(encoded))
        size_bytes += len(encoded)
    yield _encoder.encode(EncodedPlanPart(part))
    yield _encoder.encode(PlanEnd(msgspec.structs.replace(plan, steps=())))
