"""Attacker: T4, user code.
Action: creates processes without end, each in a session of its own.
Must not happen: more than 64 of them run at once, or one stays when the call has ended.
"""

from pathlib import Path

import pytest
from tests.attacks.code_calls import call, observed, runners
from tests.flowmesh_control import waiting

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.code import call_limits, processes, sandbox
from flowmesh_worker.engines.code.call_groups import PIDS_MAX
from flowmesh_worker.engines.code.call_limits import machine_groups

pytestmark = pytest.mark.slow
BOMB = """
    import os, time
    def main():
        count = 0
        while count < 600:
            try:
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(600)
                count += 1
            except OSError:
                return [{"count": count}]
        return [{"count": count}]
"""
LEFT = """
    import os, time
    def main():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        return [{"ok": True}]
"""


@pytest.fixture(params=["namespaces", "no namespaces"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """As root on a machine, or as in a pod: the runner then cannot create namespaces."""
    if request.param == "no namespaces":
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "from flowmesh_worker.engines.code import syscalls\n"
            "def refuse(flags):\n    raise OSError(1, 'not permitted')\n"
            "syscalls.unshare = refuse\n"
        )
        monkeypatch.setattr(
            processes, "sandbox_environment", lambda: {**environment(), **path(site)}
        )
    return str(request.param)


environment = processes.sandbox_environment


def path(site: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{site}:{environment().get('PYTHONPATH', '')}"}


async def test_a_control_group_bounds_the_processes_of_a_call(place: str, tmp_path: Path) -> None:
    if isinstance(reason := machine_groups(), str):
        pytest.skip(f"this machine has no groups: {reason}")
    async with observed(1e9) as usage:
        answer = await call(tmp_path / "bomb", BOMB, memory_mib=256)
    assert 16 < answer.rows[0]["count"] < PIDS_MAX  # type: ignore[operator]
    assert usage.processes <= PIDS_MAX
    assert sandbox._PROCESSES == PIDS_MAX


async def test_without_a_control_group_a_call_with_too_many_processes_is_ended(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "machine_groups", lambda: "the test has none")
    monkeypatch.setattr(call_limits, "PIDS_MAX", 16)
    endless = BOMB.replace("return [", "time.sleep(600) or [")
    with pytest.raises(AttemptError) as failed:
        await call(tmp_path / "bomb", endless, memory_mib=1024, timeout_s=30)
    assert failed.value.failure.kind == FailureKind.USER_CODE
    assert "used more than their 16 processes" in failed.value.failure.message


@pytest.mark.parametrize("group", [True, False])
async def test_processes_that_a_call_leaves_behind_are_ended(
    place: str, group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not group:
        monkeypatch.setattr(processes, "machine_groups", lambda: "the test has none")
    answer = await call(tmp_path / "left", LEFT, memory_mib=64)
    assert answer.rows == [{"ok": True}]
    await waiting.until(lambda: not runners(), within_s=10)  # they may still be ending
