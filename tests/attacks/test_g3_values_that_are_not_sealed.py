"""Attacker: T4, user code of a Python component of a service.
Action: passes unsealed, other and unnamed descriptors in place of values to its host.
Must not happen: one is read, or requests of others fail; sealed values of the same code arrive.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import python, stage_stack, together

pytestmark = pytest.mark.slow
CODE = """
import os, socket

def make(batch):
    return [forged(call["what"]) for call in batch]

def forged(what):
    from flowmesh_worker.ipc import shared_value
    kind = shared_value.SharedValue
    honest = kind.__dict__["honest"] if "honest" in kind.__dict__ else kind.__dict__["sealed"]
    kind.honest = honest

    def sealed(cls, parts, *_):
        if what == "file":
            descriptor = os.open("/dev/zero", os.O_RDONLY)
        elif what == "socket":
            descriptor = socket.socketpair.__globals__["_socket"].socketpair()[0].detach()
        elif what == "sealable":
            descriptor = os.memfd_create("x")
            os.write(descriptor, b'"' + b"x" * 100_000 + b'"')
        else:
            descriptor = os.memfd_create("x", os.MFD_ALLOW_SEALING)
            os.write(descriptor, b'"' + b"x" * 100_000 + b'"')
        return cls(descriptor, 100_002)

    kind.sealed = honest if what == "honest" else classmethod(sealed)
    if what == "unnamed":
        import gc
        from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
        (link,) = [one for one in gc.get_objects() if type(one) is DescriptorSocket]
        link._sent = 1 << 40
    return "x" * 100_000

def length(batch):
    return [len(call["text"]) for call in batch]
"""
SPEC: dict[str, Any] = {
    "components": {
        "one": python(CODE, "make", ownHost=True, batch={"max": 1}),
        "two": python(CODE, "length", ownHost=True),
    },
    "stages": [
        {"name": "made", "component": "one", "inputs": {"what": "request.what"}},
        {"name": "used", "component": "two", "inputs": {"text": "made"}},
    ],
    "reply": {"out": "used"},
}


async def test_only_sealed_values_of_a_component_are_read(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, {"w1": ["one", "two"]}) as stack:
        for what in ("unsealed", "sealable", "file", "socket", "unnamed"):
            forged, other = await together(stack.ask({"what": what}), stack.ask({"what": "honest"}))
            assert (forged[0], forged[1]["error"]["code"]) == (500, "user_code"), what
            assert other == (200, {"out": 100_000}), what
        await until(lambda: stack.hubs["w1"]._stages._value_bytes == 0)
