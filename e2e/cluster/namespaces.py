"""The namespaces of a cluster: one process keeps them, and its end ends everything inside."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HOST_ADDRESS, NODE_ADDRESS = "10.199.0.1", "10.199.0.2"
PUBLIC_ADDRESS = "93.184.216.34"
"""An address of the node that policies see as one of the internet; no packet to it leaves."""
_PREFIX = 30
HOST_LINK, _NODE_LINK = "fmesh-e2e-host", "fmesh-e2e-node"
PRIVATE = (
    Path("/run"),
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet"),
    Path("/var/log/containers"),
    Path("/var/log/pods"),
)
"""Folders that runc, CNI and the kubelet always write to, whatever their settings are; inside of
the namespaces each is empty and in memory."""
_HOLDER = (
    "unshare --net --mount --pid --fork --kill-child --propagation slave"
    " sh -c 'mount -t proc proc /proc && mount --make-rshared / &&"
    f" for place in {' '.join(map(str, PRIVATE))}; do"
    " mount -t tmpfs tmpfs $place || exit 1; done &&"
    " echo ready && exec sleep infinity'"
)


_started: list["subprocess.Popen[bytes]"] = []
"""Processes that outlive this one; the references avoid Python's warning about them."""


class Namespaces:
    """Namespaces for network, mounts and processes; a link connects the two networks."""

    def __init__(self, holder: int, first: int, made: Sequence[str] = ()) -> None:
        self.holder = holder
        self.first = first
        self.made = made

    @classmethod
    def make(cls) -> "Namespaces":
        """Creates the namespaces, with the addresses above on the two ends of the link.

        Raises:
            OSError: the kernel refuses.
        """
        made = [str(folder) for place in PRIVATE for folder in _make(place)]
        holder = subprocess.Popen(
            _HOLDER,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # at its end unshare complains that it was killed
            text=True,
            start_new_session=True,
        )
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != "ready":
            raise OSError("the kernel did not make the cluster's namespaces")
        found = cls(holder.pid, innermost(holder.pid), made)
        _ip("link", "add", HOST_LINK, "type", "veth", "peer", _NODE_LINK, "netns", str(found.first))
        _ip("addr", "add", f"{HOST_ADDRESS}/{_PREFIX}", "dev", HOST_LINK)
        _ip("link", "set", HOST_LINK, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{NODE_ADDRESS}/{_PREFIX}", "dev", _NODE_LINK),
            ("link", "set", _NODE_LINK, "up"),
            ("addr", "add", f"{PUBLIC_ADDRESS}/32", "dev", "lo"),
            ("route", "add", "default", "via", HOST_ADDRESS),
        ):
            found.run("ip", *words)
        # The second: a pod's answer to a pod of the same bridge must pass where Services' addresses
        # are restored, or the client of a Service rejects the answer. The third: each connection
        # that a policy closes is answered, so that its client does not wait for a timeout.
        found.run(
            "sysctl",
            "-qw",
            "net.ipv4.ip_forward=1",
            "net.bridge.bridge-nf-call-iptables=1",
            "net.ipv4.icmp_ratelimit=0",
        )
        return found

    def command(self, *words: str) -> list[str]:
        """Returns a command line that runs inside."""
        return ["nsenter", "-t", str(self.first), "--net", "--mount", "--pid", "--", *words]

    def run(self, *words: str, ok: bool = True) -> str:
        """Runs a command inside to its end.

        Args:
            words: the command.
            ok: whether it must succeed.

        Raises:
            RuntimeError: the command failed.
        """
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if ok and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def start(self, words: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> int:
        """Starts a program inside; returns its process id outside."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                self.command(*words),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        _started.append(process)
        return process.pid

    def end(self) -> None:
        """Ends everything inside and removes the link; may be repeated."""
        for pid in (self.first, self.holder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 60
        while _alive(self.first) and time.monotonic() < deadline:
            time.sleep(0.05)
        subprocess.run(["ip", "link", "del", HOST_LINK], capture_output=True, check=False)
        for folder in reversed(self.made):
            Path(folder).rmdir()


def _make(place: Path) -> list[Path]:
    """Creates a folder and its missing parents; returns the new ones, outermost first."""
    missing = [folder for folder in (place, *place.parents) if not folder.exists()][::-1]
    for folder in missing:
        folder.mkdir()
    return missing


def innermost(pid: int) -> int:
    """Returns the last process of a chain of single children."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
