"""Network namespaces of two machines and a router, and hubs that are processes in them.

A namespace lasts as long as a process in it: nothing is left when the test has ended.
"""

import asyncio
import contextlib
import ctypes
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import trustme
from tests.flowmesh_serving.stack import Stack, until
from tests.flowmesh_serving.tls_stack import TlsRouter, certificate, tls_router

from flowmesh_core.protocol.messages import RouterAddress
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_worker.ipc.hub_frames import AdmitReplica
from flowmesh_worker.serving.hub_process import HubProcess

ROUTER = "10.77.0.1"
PEER_PORT = 8483
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """A bridge in the router's namespace with one port for each machine.

    Attributes:
        machines: an open file of each machine's namespace.
    """

    def __init__(self, stack: contextlib.ExitStack, names: list[str], *, is_nat: bool) -> None:
        """Creates the namespaces; this thread is in that of the router until the stack ends.

        Args:
            stack: ends them.
            names: of the machines.
            is_nat: whether a machine reaches the router alone.
        """
        _enter(stack, _namespace(stack))
        self.machines = {name: _namespace(stack) for name in names}
        self._ports = {name: f"port{number}" for number, name in enumerate(names, 2)}
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge", "type", "bridge")
        _run("ip", "address", "add", f"{ROUTER}/24", "dev", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        for number, machine in enumerate(self.machines.values(), 2):
            port, there = f"port{number}", f"/proc/{os.getpid()}/fd/{machine}"
            inside = ("nsenter", f"--net={there}", "ip")
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", f"eth{number}")
            _run("ip", "link", "set", f"eth{number}", "netns", there)
            _run("ip", "link", "set", port, "master", "bridge", "up")
            if is_nat:
                _run("ip", "link", "set", port, "type", "bridge_slave", "isolated", "on")
            _run(*inside, "address", "add", f"10.77.0.{number}/24", "dev", f"eth{number}")
            _run(*inside, "link", "set", f"eth{number}", "up")
            _run(*inside, "link", "set", "lo", "up")

    def stall(self, machine: str) -> None:
        """Drops all packets of a machine's link: neither end sees anything but silence."""
        _run("ip", "link", "set", self._ports[machine], "nomaster")

    def resume(self, machine: str) -> None:
        """Lets a stalled link go on."""
        _run("ip", "link", "set", self._ports[machine], "master", "bridge")


class HubInNamespace:
    """The hub of a worker as a process of its own."""

    def __init__(self, worker: str) -> None:
        self._process = HubProcess(worker, print, PEER_PORT)

    async def start(self, namespace: int, address: RouterAddress) -> None:
        """Starts it in a network namespace."""
        with contextlib.ExitStack() as stack:
            _enter(stack, namespace)
            self._process.start(1, (address,))
            await until(lambda: self._process.pid != 0)

    async def admit(self, admitted: AdmitReplica) -> None:
        """See ``ServiceHub.admit``."""
        self._process._send(admitted)

    def close(self) -> None:
        """Ends it."""
        self._process.stop(1)

    async def closed(self) -> None:
        """Waits until it has ended."""
        await until(lambda: self._process.pid == 0)


class MachinesOfNetwork:
    """Hubs in the network namespaces of their machines.

    Attributes:
        trust: verifies the router.
    """

    def __init__(self, folder: Path, network: Network) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert(ROUTER)
        authority.cert_pem.write_to_path(folder / "ca.crt")
        issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")
        issued.private_key_pem.write_to_path(folder / "tls.key")
        self.trust: ssl.SSLContext | bool = ssl.create_default_context(cafile=folder / "ca.crt")
        self._network = network
        self._hubs: list[HubInNamespace] = []

    @contextlib.asynccontextmanager
    async def router(
        self, folder: Path, listed: tuple[ServiceEntry, ...], **settings: Any
    ) -> AsyncIterator[Stack]:
        """See ``Machines.router``."""
        async with tls_router(folder, ROUTER, listed=listed, **settings) as stack:
            yield stack
            async with asyncio.TaskGroup() as group:
                for hub in self._hubs:
                    hub.close()
                    group.create_task(hub.closed())

    async def hub(self, stack: Stack, worker: str) -> HubInNamespace:
        """See ``Machines.hub``."""
        assert isinstance(stack, TlsRouter)
        shown = certificate(worker=worker)
        address = RouterAddress(
            f"tls:{ROUTER}:{stack.router.hubs_port}",
            ca=stack.ca,
            certificate=shown.certificate,
            key=shown.key,
            authorities=shown.authorities,
        )
        hub = HubInNamespace(worker)
        await hub.start(self._network.machines[worker], address)
        self._hubs.append(hub)
        return hub


@contextlib.contextmanager
def network(*names: str, is_nat: bool = False) -> Iterator[Network]:
    """Yields a network; this thread is in the router's namespace for so long."""
    with contextlib.ExitStack() as stack:
        yield Network(stack, list(names), is_nat=is_nat)


def _namespace(stack: contextlib.ExitStack) -> int:
    """Returns an open file of a new namespace."""
    with contextlib.ExitStack() as before:
        _enter(before, None)
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, namespace)
    return namespace


def _enter(stack: contextlib.ExitStack, namespace: int | None) -> None:
    """Has this thread be in a namespace, or a new one, until the stack ends."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, before)
    if namespace is None:
        _check(_libc.unshare(_NEW_NETWORK))
    else:
        _check(_libc.setns(namespace, _NEW_NETWORK))
    stack.callback(lambda: _check(_libc.setns(before, _NEW_NETWORK)))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
