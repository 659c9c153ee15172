"""The machine below the e2e cluster: faults that the API server cannot cause."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster import network_policies
from e2e.cluster.paths import BINS, STATE
from e2e.cluster.running import namespaces
from e2e.harness.kube import Json, until

_GROUPS = Path("/sys/fs/cgroup")
_CUT = """table inet e2e_cut {
  chain in { type filter hook input priority -300; policy drop; iifname "lo" accept; }
  chain out { type filter hook output priority -300; policy drop; oifname "lo" accept; }
}
"""
_HOG = """
import sys
open(sys.argv[1], "w").write("0")
held = []
while True:
    held.append(bytearray(b"x") * (8 << 20))
"""
"""Joins a control group and takes all its memory."""
_FIRST_TO_GO = "1000"
"""The ``oom_score_adj`` of processes that the kernel ends first."""


class Machine:
    """Faults in pods' processes, networks and memory, and in the cluster's own programs."""

    def processes(self, pod: Json, container: str) -> list[int]:
        """Returns the ids on this machine of the processes of a pod's container."""
        states = pod["status"]["containerStatuses"]
        name = next(s["containerID"].partition("//")[2] for s in states if s["name"] == container)
        return [
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if name in _text(process / "cgroup")
        ]

    def first_process(self, pod: Json, container: str) -> int:
        """Returns the id of a container's first process, which is there as long as it is.

        Others may be gone in an instant, or have a network of their own: sandboxes.
        """
        ids = {pid: _ids_inside(pid) for pid in self.processes(pod, container)}
        return min((pid for pid in ids if ids[pid][-1:] == [1]), key=lambda pid: len(ids[pid]))

    def freeze(self, pod: Json, container: str) -> None:
        """Freezes a pod's processes."""
        self._signal(pod, container, signal.SIGSTOP)

    def thaw(self, pod: Json, container: str) -> None:
        """Resumes a pod's processes."""
        self._signal(pod, container, signal.SIGCONT)

    @contextmanager
    def cut(self, pod: Json, container: str) -> Iterator[None]:
        """Drops all packets of a pod's network."""
        inside = ["nsenter", "-t", str(self.first_process(pod, container)), "--net", "nft"]
        subprocess.run([*inside, "-f", "-"], input=_CUT, text=True, check=True)
        try:
            yield
        finally:  # the pod and its network may no longer exist
            subprocess.run([*inside, "delete", "table", "inet", "e2e_cut"], check=False,
                           capture_output=True)  # fmt: skip

    def in_network(self, pod: Json, words: Sequence[str]) -> list[str]:
        """Returns a command line that runs a program of this machine in a pod's network."""
        container = pod["spec"]["containers"][0]["name"]
        return ["nsenter", "-t", str(self.first_process(pod, container)), "--net", "--", *words]

    @contextmanager
    def without_policies(self) -> Iterator[None]:
        """Lifts all NetworkPolicies: connections open that they closed."""
        (process,) = _running(network_policies.PROGRAM)
        os.kill(int(process.name), signal.SIGSTOP)
        rules = [shlex.split(line) for line in namespaces().run("iptables", "-S").splitlines()]
        jumps = [rule for _, *rule in rules if network_policies.CHAINS.get(rule[0]) == rule[-1]]
        try:
            for chain, *rule in jumps:
                namespaces().run("iptables", "-D", chain, *rule)
            yield
        finally:
            for chain, *rule in jumps:
                namespaces().run("iptables", "-I", chain, "1", *rule)
            # nsenter, its parent, stops itself where its child is stopped.
            for pid in (_parent(process), int(process.name)):
                os.kill(pid, signal.SIGCONT)

    @contextmanager
    def out_of_memory(self, pod: Json, container: str) -> Iterator[None]:
        """Fills a container's memory until the kernel ends its processes."""
        victims = self.processes(pod, container)
        for pid in victims:
            Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_GO)
        lines = _text(Path(f"/proc/{victims[0]}/cgroup")).splitlines()
        group = next(_memory(line) for line in lines if _memory(line) is not None)
        words = [sys.executable, "-c", _HOG, f"{group}/cgroup.procs"]
        hog = subprocess.Popen(words)
        try:
            yield
        finally:
            hog.kill()
            hog.wait()

    def restart(self, program: str) -> None:
        """Kills a part of the control plane and starts it with the same command."""
        (process,) = _running(program)
        words = (process / "cmdline").read_bytes().decode().split("\0")[:-1]
        path = dict(
            item.split("=", 1)
            for item in (process / "environ").read_bytes().decode().split("\0")
            if "=" in item
        )["PATH"]
        os.kill(int(process.name), signal.SIGKILL)
        until(lambda: not process.exists(), f"{program} is gone, and its port free")
        namespaces().start(words, STATE / "logs" / f"{program}.log", {"PATH": path})

    def _signal(self, pod: Json, container: str, number: signal.Signals) -> None:
        for pid in self.processes(pod, container):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _running(program: str) -> list[Path]:
    """Returns processes of the e2e cluster; tests may run others of the same name."""
    start = str(BINS / program).encode() + b"\0"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if words.startswith(start) and str(STATE).encode() in words:
                found.append(process)
    return found


def _parent(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("PPid:")))


def _ids_inside(pid: int) -> list[int]:
    """Returns a process's ids in the namespaces that it is in, the innermost last; none if gone."""
    lines = _text(Path(f"/proc/{pid}/status")).splitlines()
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]


def _memory(line: str) -> Path | None:
    """Returns the memory control group's folder from lines of ``/proc/PID/cgroup``."""
    _, controllers, path = line.split(":", 2)
    if controllers == "":
        found = _GROUPS / path.lstrip("/")
        return found if (found / "memory.max").is_file() else None
    return _GROUPS / "memory" / path.lstrip("/") if controllers == "memory" else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
