"""Attacker: T4, user code.
Action: writes answers itself, several, malformed or of other shapes, and floods its output.
Must not happen: a forged answer is more than its own step's result or failure, or the host suffers.
"""

import textwrap
from pathlib import Path

import pytest
from tests.attacks.code_calls import call

from flowmesh_core.errors import AttemptError, FailureKind

pytestmark = pytest.mark.slow
WRITE = """
    import os
    def main():
        data = {data}
        for descriptor in range(3, 4096):  # the answer's own is one of them
            try:
                rest = data
                while rest:
                    rest = rest[os.write(descriptor, rest):]
            except OSError:
                pass
        os._exit({code})
"""
HONEST = "    def main():\n        return [{'a': 1}]\n"
MALFORMED = {
    "nothing": ("b''", 0),
    "an exit without an answer": ("b''", 7),
    "text": ("b'not MessagePack'", 0),
    "a number": ("b'\\x01'", 0),
    "a list for an object": ("b'\\x90'", 0),
    "rows that are a number": ("b'\\x81\\xa4rows\\x01'", 0),
    "rows of numbers": ("b'\\x81\\xa4rows\\x91\\x01'", 0),
    "an error that is a number": ("b'\\x81\\xa5error\\x05'", 0),
    "a length beyond the end": ("b'\\x81\\xa4rows\\xdd\\xff\\xff\\xff\\xff'", 0),
    "text that is not UTF-8": ("b'\\x81\\xa5error\\xa2\\xff\\xfe'", 0),
    "1,000,000 levels": ("b'\\x81\\xa7metrics\\x81\\xa1a' + b'\\x91' * 1_000_000", 0),
    "two answers": ("b'\\x80' * 2", 0),
    "an extension type": ("b'\\xc7\\x04\\x05abcd'", 0),
}
OWN = {
    "an empty answer": ("b'\\x80'", ""),
    "an error of its own": ("b'\\x81\\xa5error\\xa4mine'", "mine"),
    "a sandbox level that is not one": ("b'\\x81\\xa5level\\xa9unlimited'", ""),
    "unknown fields": ("b'\\x81\\xa5outer\\x01'", ""),
}
FLOODS = {
    "output": "print('x' * 1_000_000)",
    "lines": "print('\\n' * 200_000)",
    "errors": "sys.stderr.write('e' * 1_000_000)",
    "bytes that are not text": "os.write(1, bytes(range(256)) * 4_000)",
    "control characters": "os.write(1, b'\\x1b[2J\\x1b]0;title\\x07' * 10_000)",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_answer_fails_only_its_own_step(name: str, tmp_path: Path) -> None:
    data, code = MALFORMED[name]
    with pytest.raises(AttemptError) as failed:
        await call(tmp_path / "calls", WRITE.format(data=data, code=code), memory_mib=64)
    assert failed.value.failure.kind == FailureKind.USER_CODE
    written = "wrote something else than an answer" in failed.value.failure.message
    assert written == (data != "b''"), failed.value.failure.message
    assert (await call(tmp_path / "calls", HONEST, memory_mib=64)).rows == [{"a": 1}]


@pytest.mark.parametrize("name", OWN)
async def test_a_forged_answer_affects_only_its_own_step(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, error = OWN[name]
    answer = await call(tmp_path / "calls", WRITE.format(data=data, code=0), memory_mib=64)
    assert (answer.rows, answer.error) == ([], error)
    assert "unlimited" not in capfd.readouterr().out


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_of_output_changes_no_answer(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = f"""
        import os, sys
        def main():
            for _ in range(20):
                {FLOODS[name]}
            return [{{"a": 1}}]
    """
    answer = await call(tmp_path / "calls", textwrap.dedent(code), memory_mib=64)
    assert answer.rows == [{"a": 1}]
    capfd.readouterr()
