"""Attacker: T4, user code of a Python component of a service.
Action: passes files that only it can write, in place of sealed ones; gives back the lock of a value
of a trusted component, maps its file anew, and waits for the next values in it.
Must not happen: the first are read; the second sees a value that it was not sent.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import python, stage_stack, together

pytestmark = pytest.mark.slow
FORGED = """
import fcntl, mmap, os

mapped = []

def make(batch):
    return [forged(call["what"]) for call in batch]

def forged(what):
    from flowmesh_worker.ipc import shared_value
    kind = shared_value.SharedValue
    honest = kind.__dict__["honest"] if "honest" in kind.__dict__ else kind.__dict__["sealed"]
    kind.honest = honest

    def sealed(cls, parts, *_):
        descriptor = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        os.write(descriptor, b'"' + b"x" * 100_000 + b'"')
        mapped.append(mmap.mmap(descriptor, 100_002))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, shared_value.REUSABLE_SEALS)
        if what == "last seal":
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        return cls(descriptor, 100_002, is_sealed=what == "no size", is_reusable=True)

    kind.sealed = honest if what == "honest" else classmethod(sealed)
    return "x" * 100_000

def length(batch):
    return [len(call["text"]) for call in batch]
"""
SPYING = """
import fcntl, mmap, sys
import numpy as np

seen = []

def make(batch):
    return [{"rows": np.full(call["n"], call["fill"], "u1")} for call in batch]

def spy(batch):
    main = sys.modules["__main__"]
    if not seen:
        mapped = main.mapped
        def spies(value):
            seen.append(mmap.mmap(value.fileno(), 0, prot=mmap.PROT_READ))
            fcntl.flock(value.fileno(), fcntl.LOCK_UN)
            return mapped(value)
        main.mapped = spies
    return [{"sum": int(call["rows"].sum()), "seen": [one[1 << 16] for one in seen],
             "rest": [sum(one[(1 << 20) + 1024:]) for one in seen]} for call in batch]
"""


def spec(
    code: str, second: str, made: dict[str, str], used: dict[str, str], **first: Any
) -> dict[str, Any]:
    return {
        "components": {
            "one": python(code, "make", ownHost=True, batch={"max": 1}, **first),
            "two": python(code, second, ownHost=True),
        },
        "stages": [
            {"name": "made", "component": "one", "inputs": made},
            {"name": "used", "component": "two", "inputs": used},
        ],
        "reply": {"out": "used"},
    }


async def test_a_file_that_a_component_can_write_is_not_read(tmp_path: Path) -> None:
    service = spec(FORGED, "length", {"what": "request.what"}, {"text": "made"})
    async with stage_stack(tmp_path, service, {"w1": ["one", "two"]}) as stack:
        for what in ("reusable", "no size", "last seal"):
            forged, other = await together(stack.ask({"what": what}), stack.ask({"what": "honest"}))
            assert (forged[0], forged[1]["error"]["code"]) == (500, "user_code"), what
            assert "not sealed" in forged[1]["error"]["message"]
            assert other == (200, {"out": 100_000}), what
        await until(lambda: stack.hubs["w1"]._stages._value_bytes == 0)


async def test_code_in_a_sandbox_sees_no_later_value_in_the_file_of_one_that_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWMESH_TRUSTED_CODE", "1")
    made = {"n": "request.n", "fill": "request.fill"}
    service = spec(SPYING, "spy", made, {"rows": "made.rows"}, trusted=True)
    n = 1 << 20
    async with stage_stack(tmp_path, service, {"w1": ["one", "two"]}) as stack:
        for fill in range(10):
            status, body = await stack.ask({"n": n, "fill": fill})
            assert (status, body["out"]["sum"]) == (200, fill * n)
            # Of the first call nothing is seen, since the code had not begun to look.
            assert body["out"]["seen"] == list(range(1, fill + 1))
            assert not any(body["out"]["rest"])
