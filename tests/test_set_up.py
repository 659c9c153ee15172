"""The output of `make` while it sets up the environment: durations, sizes and progress.

Also its errors before it builds a cluster on a machine without the prerequisites.
"""

import importlib.util
import os
import pty
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from e2e.cluster import __main__ as cluster
from e2e.cluster import prerequisites
from e2e.cluster.tools import ToolsError

ROOT = Path(__file__).parent.parent
QUIET_INSTALL = ROOT / "hack" / "quiet_install.sh"
SAYS = ["sh", "-c", "echo 'Downloading torch (500MiB)' >&2; echo ' + torch==1' >&2; exit $CODE"]


def recipe(target: str) -> str:
    """The commands of a target, none of them run."""
    command = ["make", "--no-print-directory", "-n", "-B", target]
    plain = {k: v for k, v in os.environ.items() if k not in ("VENV", "MAKEFLAGS")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=plain, check=True)
    return done.stdout


def test_the_large_installation_shows_its_size_and_is_not_quiet() -> None:
    (install,) = [
        line
        for line in recipe(".venv/.ready").replace("\\\n", " ").splitlines()
        if "--editable" in line
    ]
    assert "hack/quiet_install.sh" in install
    assert "--quiet" not in install
    assert "6.9 GB" in recipe(".venv/.ready")


def test_the_tests_name_a_missing_go_before_they_begin() -> None:
    commands = recipe("test").splitlines()
    (first,) = [n for n, line in enumerate(commands) if "hack/require.sh go" in line][:1]
    assert first < min(n for n, line in enumerate(commands) if "-m pytest" in line)


def test_an_environment_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = ["make", "--no-print-directory", "demo", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"VENV={tmp_path} has no bin/python" in done.stderr
    assert "numa" not in done.stderr


def test_a_flavor_of_an_image_that_does_not_exist_is_refused_before_one_is_built() -> None:
    script = ROOT / "hack" / "build_images.sh"
    environment = {**os.environ, "BUILDER": "docker", "BUILD_FLAGS": "--never-run"}
    done = subprocess.run(
        [str(script), "0.1.0", "", "cpu", "thn"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "error: no flavor 'thn': expected thin, cpu or gpu\n"


def test_a_plugin_is_installed_without_changing_installed_packages() -> None:
    (install,) = [line for line in recipe("plugin").splitlines() if "examples/plugin" in line]
    assert "--no-deps" in install


def test_every_module_that_a_command_runs_has_a_main_program() -> None:
    files = [ROOT / "Makefile", ROOT / ".ci/run", *(ROOT / "hack").glob("*.sh")]
    named = {n for f in files for n in re.findall(r"-m (\w+(?:\.\w+)+)", f.read_text())}
    assert {"flowmesh_sim.soak", "flowmesh_core.spec.generate"} <= named
    assert [name for name in sorted(named) if not runs(name)] == []
    assert not runs("flowmesh_sim.soak.soak")


def runs(module: str) -> bool:
    """Whether ``python -m`` does more than to define things."""
    found = importlib.util.find_spec(module)
    assert found is not None, module
    if found.submodule_search_locations:
        return any((Path(p) / "__main__.py").exists() for p in found.submodule_search_locations)
    assert found.origin is not None
    return '__name__ == "__main__"' in Path(found.origin).read_text()


def test_make_soak_simulates_the_seeds_that_it_is_given() -> None:
    command = ["make", "--no-print-directory", "soak", f"VENV={sys.prefix}", "SEEDS=3-3"]
    plain = {k: v for k, v in os.environ.items() if k != "MAKEFLAGS"}
    done = subprocess.run(
        [*command, "ARGS=--fresh"], cwd=ROOT, capture_output=True, text=True, env=plain, check=True
    )
    assert re.match(r"1 seeds, \d+ runs, .*; 0 broken", done.stdout)


def test_without_a_terminal_downloads_are_shown_and_packages_are_not() -> None:
    done = subprocess.run(
        [QUIET_INSTALL, *SAYS],
        capture_output=True,
        text=True,
        env={**os.environ, "CODE": "0"},
        check=True,
    )
    assert done.stderr == "Downloading torch (500MiB)\n"


def test_a_failure_of_the_installer_fails_the_set_up() -> None:
    environment = {**os.environ, "CODE": "3"}
    assert subprocess.run([QUIET_INSTALL, *SAYS], env=environment, check=False).returncode == 3


def test_on_a_terminal_the_installer_shows_its_own_progress() -> None:
    terminal, inside = pty.openpty()
    environment = {**os.environ, "CODE": "0"}
    subprocess.run(
        [QUIET_INSTALL, "sh", "-c", "test -t 1 && test -t 2 && echo drawn"],
        stdout=inside,
        stderr=inside,
        env=environment,
        check=True,
    )
    os.close(inside)
    assert b"drawn" in os.read(terminal, 100)
    os.close(terminal)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has nothing to give up")
@pytest.mark.parametrize(
    ("capability", "need"), [("sys_admin", "namespaces"), ("net_admin", "links")]
)
def test_a_machine_that_cannot_run_a_cluster_is_refused_at_once(capability: str, need: str) -> None:
    without = [f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"]
    done = subprocess.run(
        ["setpriv", *without, sys.executable, "-m", "e2e.cluster", "check"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"this machine cannot run a cluster: {need}: " in done.stderr
    assert "docker run --privileged" in done.stderr


@pytest.mark.parametrize(
    ("made", "need"),
    [
        ((), "10 the first time"),
        (("bin/.kubernetes",), "8 the first time"),
        (("bin/.kubernetes", "images"), "5 the first time"),
        (("bin/.kubernetes", "images", "stock/books"), "3: make room"),
    ],
)
def test_a_disk_without_room_for_what_is_not_made_yet_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: tuple[str, ...], need: str
) -> None:
    usage = namedtuple("usage", "total used free")(100 << 30, 98 << 30, 2 << 30)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "SYSTEM", {"sh": "dash"})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    for name in ("BINS", "IMAGES", "STOCK"):
        folder = getattr(prerequisites, name).name
        monkeypatch.setattr(prerequisites, name, tmp_path / folder)
    for part in made:
        (tmp_path / part).mkdir(parents=True)
    with pytest.raises(ToolsError, match=rf"has 2 GiB free; a cluster needs {need}"):
        prerequisites.check_machine()


def test_a_machine_that_can_run_a_cluster_is_reported_as_capable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "check_machine", lambda: None)
    assert cluster.main(["check"]) == 0
    assert capsys.readouterr().out == "this machine can run a cluster\n"

    def lacks_runc() -> None:
        raise ToolsError("missing: runc")

    monkeypatch.setattr(cluster, "check_machine", lacks_runc)
    assert cluster.main(["check"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "error: missing: runc\n")
