"""The user's code: what it may do, what it may not, and how its mistakes are told."""

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from flowmesh_core.errors import FailureKind

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import AttemptEnd


async def run(world: "World", code: str, rows: Any = (), **params: Any) -> "AttemptEnd":
    inputs = {"rows": await world.dataset(list(rows))} if rows else {}
    values = {"function": "main", "args": {}, "timeoutS": 20.0, "memoryMib": 256}
    return await world.gateway.do(
        world.assignment(
            "code.python",
            params={"code": textwrap.dedent(code), **values, **params},
            inputs=inputs,
        )
    )


async def test_a_function_gets_rows_and_returns_rows_and_metrics(world: "World") -> None:
    await world.worker()
    code = """
        import json, math, statistics
        def main(rows, factor):
            print("so many", len(rows))
            return [{"n": r["n"] * factor, "j": r["j"]} for r in rows], {"mean": 1.5}
    """
    given = [{"n": 1, "j": {"x": [1]}}, {"n": 2, "j": None}]
    end = await run(world, code, given, args={"factor": 10})
    assert await world.rows(end) == [{"j": {"x": [1]}, "n": 10}, {"j": None, "n": 20}]
    assert end.outputs["metrics"].value == {"mean": 1.5}
    assert "so many 2" in end.log


async def test_the_log_has_the_last_state_of_a_redrawn_line(world: "World") -> None:
    await world.worker()
    code = """
        def main():
            print("\\r10%", end="")
            print("\\r99%", end="\\r\\n")
            return []
    """
    end = await run(world, code)
    assert end.failure is None
    assert "99%" in end.log.splitlines()
    assert "10%" not in end.log


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def main():\n    return [1 / 0]", ["ZeroDivisionError"]),
        ("def main():\n    return 7", ["returned int"]),
        ("def main():\n    return [7]", ["row 1", "int"]),
        ("def other():\n    return []", ["no function main()"]),
        ("def main(:\n    return []", ["SyntaxError"]),
        ("import sys\ndef main():\n    sys.exit(3)", ["SystemExit: 3"]),
        ("import os\ndef main():\n    os._exit(3)", ["code 3"]),
        ("def main():\n    return [{'x': object()}]", ["object"]),
        ("def main():\n    return [{'x': 1}, {'x': 'a'}]", ["row 2"]),
        ("def main():\n    return [{'x': float('nan')}]", ["nan"]),
        ("def main():\n    x = bytearray(1 << 30)\n    return []", ["256 MiB"]),
    ],
)
async def test_an_error_in_the_code_is_reported_and_never_retried(
    world: "World", code: str, words: list[str]
) -> None:
    await world.worker()
    end = await run(world, code)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.USER_CODE
    for word in words:
        assert word in end.failure.message


async def test_a_traceback_shows_only_lines_of_the_user_code(world: "World") -> None:
    await world.worker()
    end = await run(
        world, "def main():\n    return deep()\n\ndef deep():\n    raise KeyError('k')\n"
    )
    assert end.failure is not None
    assert "line 5, in deep\n    raise KeyError" in end.failure.detail
    assert "runner.py" not in end.failure.detail


async def test_a_loop_without_end_is_stopped_and_the_next_piece_of_work_runs(
    world: "World",
) -> None:
    await world.worker()
    end = await run(world, "def main():\n    while True: pass", timeoutS=0.7)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.TIMEOUT
    assert await world.rows(await run(world, "def main():\n    return [{'a': 1}]")) == [{"a": 1}]


REACHES = """
    import os, socket, subprocess
    def attempt(what):
        try:
            return repr(what())
        except BaseException as e:
            return type(e).__name__
    def main(path):
        return [{
            "network": attempt(lambda: socket.create_connection(("127.0.0.1", 80), 1)),
            "socket": attempt(lambda: socket.socket()),
            "token": os.environ.get("FLOWMESH_WORKER_TOKEN", ""),
            "credentials": os.environ.get("AWS_SECRET_ACCESS_KEY", ""),
            "file": attempt(lambda: open(path).read()),
            "passwd": attempt(lambda: open("/etc/passwd").read()),
            "uid": os.getuid(),
            "pid": os.getpid(),
            "mount": attempt(lambda: os.mkdir("/x")),
            "temporary": attempt(lambda: open("/tmp/written-by-users-code", "w").write("y")),
            "much": attempt(lambda: open("/tmp/much", "w").write("y" * (80 << 20))),
        }]
"""


async def test_the_code_reaches_no_network_no_file_and_no_credentials(
    world: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("FLOWMESH_WORKER_TOKEN", "secret")
    secret = world.root / "secret"
    secret.write_text("secret")
    await world.worker()
    end = await run(world, REACHES, args={"path": str(secret)})
    (found,) = await world.rows(end)
    assert found["socket"] == "PermissionError"
    assert found["network"] == "PermissionError"
    assert found["token"] == ""
    assert found["credentials"] == ""
    if "without a file system" in end.log:
        pytest.skip(f"this machine gives no namespaces: {end.log}")
    assert found["file"] == "FileNotFoundError"
    assert found["passwd"] == "FileNotFoundError"
    assert found["pid"] == 1
    assert found["mount"] in ("PermissionError", "OSError")
    assert found["temporary"] == "1"
    assert found["much"] == "OSError"


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"mean": "number"}, []),
        ({"mean": "number", "count": "integer"}, ["returned no metric 'count'", "with.metrics"]),
        ({"mean": "integer"}, ["the metric 'mean' is 1.5", "declares it as integer"]),
    ],
)
async def test_declared_metrics_are_required_of_the_function(
    world: "World", metrics: dict[str, str], words: list[str]
) -> None:
    await world.worker()
    end = await run(world, "def main():\n  return [], {'mean': 1.5}", metrics=metrics)
    assert (end.failure is None) is (not words)
    for word in words:
        assert end.failure is not None
        assert word in end.failure.message
        assert end.failure.kind == FailureKind.USER_CODE
