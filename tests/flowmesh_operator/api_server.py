"""A real API server for the tests: etcd and kube-apiserver on 127.0.0.1, RBAC on, our CRDs in.

Nothing else of a cluster runs: no controller, no scheduler, no kubelet. What an object becomes is
therefore the work of the code under test alone; a Deployment has no pods, a deleted namespace stays
in ``Terminating``, and a new one has no service account ``default``.
"""

import contextlib
import itertools
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from ssl import create_default_context
from typing import Any

import pytest
import yaml
from e2e.cluster import control_plane, tools
from e2e.cluster.access import write_access
from e2e.cluster.certificates import Certificates, make_certificates
from e2e.cluster.paths import BINS

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1"
USERS = {"ada": ("ada", ""), "ben": ("ben", "")}
"""Users without any right, for tests that give them some: kubeconfig and token by name."""
_START_S = 60.0
_END_S = 20.0
_POLL_S = 0.02
_numbers = itertools.count(1)


def until(holds: Callable[[], bool], what: str, within_s: float = _START_S) -> None:
    """Waits for a condition; fails with its words."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_s:.0f} s")
        time.sleep(_POLL_S)


@dataclass(slots=True)
class ApiServer:
    """The server, and the ways to call it.

    Attributes:
        url: its address.
        folder: its files: logs, certificates and kubeconfig files.
        certificates: ``certificates.authority`` is what a client trusts.
        storage: the address of etcd.
    """

    url: str
    folder: Path
    certificates: Certificates
    storage: str
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, name: str) -> Path:
        """Returns the kubeconfig file of an identity: ``admin``, or one of ``USERS``."""
        return self.folder / "access" / f"{name}.kubeconfig"

    def token_of(self, name: str) -> str:
        """Returns the bearer token of an identity: ``admin``, or one of ``USERS``."""
        config = yaml.safe_load(self.kubeconfig_of(name).read_text())
        return str(config["users"][0]["user"]["token"])

    def kubectl(
        self, *words: str, given: str | None = None, ok: bool = True, who: str = "admin"
    ) -> "subprocess.CompletedProcess[str]":
        """Runs kubectl.

        Args:
            words: its arguments.
            given: its input, for ``-f -``.
            ok: whether it must succeed.
            who: the identity.
        """
        done = subprocess.run(
            [str(BINS / "kubectl"), f"--kubeconfig={self.kubeconfig_of(who)}", *words],
            capture_output=True, text=True, input=given, check=False, cwd=ROOT,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        if ok and done.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done

    def get(self, *words: str) -> dict[str, Any]:
        """Returns the document of ``kubectl get ... -o json``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json").stdout)
        return found

    def namespace(self, labels: dict[str, str] | None = None) -> str:
        """Creates a new namespace with these labels; returns its name."""
        name = f"test-{next(_numbers)}"
        meta = {"name": name, "labels": labels or {}}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        self.kubectl("create", "-f", "-", given=json.dumps(made))
        return name

    def start_api_server(self) -> None:
        """Starts kube-apiserver and waits until it answers; the address stays the same."""
        words = control_plane.api_server(
            self.certificates,
            self.folder / "access" / "tokens.csv",
            address=ADDRESS,
            port=int(self.url.rpartition(":")[2]),
            storage=self.storage,
        )
        # The Service `kubernetes` cannot point at a loopback address, and need not.
        self._start([*words, "--endpoint-reconciler-type=none"])
        until(self._ready, "kube-apiserver answers")

    def stop_api_server(self) -> None:
        """Kills kube-apiserver and leaves etcd with its data: an outage."""
        self._end("kube-apiserver")

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Causes an outage during a block."""
        self.stop_api_server()
        try:
            yield
        finally:
            self.start_api_server()

    def start(self) -> None:
        """Starts both programs and installs the CRDs."""
        self._start(
            control_plane.etcd(self.folder, clients=self.storage, peers=f"http://{ADDRESS}:0")
        )
        self.start_api_server()
        self.kubectl("apply", "--server-side", "-f", "crds")
        self.kubectl("wait", "--for=condition=Established", "--timeout=180s", "-f", "crds")

    def end(self) -> None:
        """Ends both programs."""
        for name in reversed(list(self._running)):
            self._end(name)

    def _start(self, words: list[str]) -> None:
        name = words[0]
        command = [str(BINS / name), *words[1:]]
        if setpriv := shutil.which("setpriv"):  # it ends with the tests, however these end
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait(_END_S)

    def _ready(self) -> bool:
        for name, process in self._running.items():
            if process.poll() is not None:
                log = (self.folder / f"{name}.log").read_text()
                raise AssertionError(f"{name} ended with {process.returncode}:\n{log[-3000:]}")
        asked = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token_of('admin')}"}
        )
        trust = create_default_context(cafile=str(self.certificates.authority))
        try:
            with urllib.request.urlopen(asked, timeout=5, context=trust) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """Yields a separate server, for tests that change the whole server.

    Args:
        folder: an empty directory for its files.
    """
    try:
        tools.build_api(BINS)
    except tools.ToolsError as e:
        pytest.fail(f"no API server to test against; `make tools` builds it: {e}")
    port, storage = _free_ports(2)
    certificates = make_certificates(folder / "certificates", ADDRESS)
    url = f"https://{ADDRESS}:{port}"
    write_access(folder / "access", url, certificates.authority, [], USERS)
    server = ApiServer(url, folder, certificates, f"http://{ADDRESS}:{storage}")
    try:
        server.start()
        yield server
    finally:
        server.end()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((ADDRESS, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
