"""A worker's settings, read once at its start from the command line and the environment."""

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from flowmesh_core.protocol.sandbox_levels import SandboxLevel
from flowmesh_core.units import nano_usd
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_worker.llm_settings import pool_llm_settings

TOKEN_VARIABLE = "FLOWMESH_WORKER_TOKEN"
_NO_TOKEN = "is not a token: it holds control characters, or bytes that are not UTF-8"
_MIB = 1 << 20
_DEFAULT_CACHE_BYTES = 20 << 30


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of one worker.

    Attributes:
        gateway: ``ws://host:port`` or ``wss://``; ``/worker`` is added.
        gateway_ca: certificates to trust for ``wss://`` and the blob service, read at each
            connection; None for the system's.
        store: address of the store, as ``open_store`` reads it; or that of the blob service,
            ``https://host:port``, whose certificate ``gateway_ca`` must sign too.
        store_ca: certificates to trust for the bucket's server; None for the system's. With an
            ``s3://`` address it is the option ``ca``.
        store_grace_s: the collector's grace, where the store is a directory or bucket.
        name: unique among the connected workers; begins with the pool's name and ``-``, or is
            that of the pod whose token it has.
        token: presented when joining; ``token_file``, if given, is read at each connection.
        memory_mib: host memory that engine instances may reserve.
        sleep_mib: the part of it that instances may take while they are asleep; 0 has none sleep.
        price_nanousd_per_hour: of the whole worker.
        price_estimated: whether the price is an estimate.
        spot: whether the provider may take the machine away at any time.
        orphan_timeout_s: how long it waits for a control plane before it exits.
        grace_s: how long attempts may continue after SIGTERM.
        peer_port: where hubs of other machines send values of services' stages; 0 for nowhere.
        sandbox_minimum: the least sandbox level at which user code may run; empty for any.
        health_dir: where the files ``alive`` and ``ready`` are written, for probes.
    """

    gateway: str
    store: str
    name: str
    cache_dir: Path
    pool: str = "local"
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    gateway_ca: Path | None = None
    store_ca: Path | None = None
    store_grace_s: float = DEFAULT_GRACE_S
    memory_mib: int = 4096
    sleep_mib: int = 2048
    cpus: int = 1
    price_nanousd_per_hour: int = 0
    price_estimated: bool = True
    spot: bool = False
    power_w: float = 0.0
    idle_w: float = 0.0
    cache_bytes: int = _DEFAULT_CACHE_BYTES
    allow_user_code: bool = False
    sandbox_minimum: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    zone: str = ""
    node: str = ""
    grace_s: float = 30.0
    peer_port: int = 0
    orphan_timeout_s: float = 300.0
    cpu_only: bool = False
    health_dir: Path | None = None

    def read_token(self) -> str:
        """Returns the token; a projected token is renewed in its file while the worker runs.

        Raises:
            OSError: the file cannot be read, or holds no token.
        """
        if self.token_file is None:
            return self.token
        token = self.token_file.read_text(errors="surrogateescape").strip()
        if not token.isprintable():
            raise OSError(f"{self.token_file} {_NO_TOKEN}")
        return token


def parse_settings(arguments: Sequence[str] | None = None) -> WorkerSettings:
    """Parses the command line; exits with a message if it is not valid."""
    parser = _parser()
    a = parser.parse_args(arguments)
    try:
        pool_llm_settings()  # engine hosts read it: a wrong value is refused before there is one
    except ValueError as e:
        parser.error(str(e))
    price = a.price_usd_per_hour
    memory_mib = a.memory_mib or int(psutil.virtual_memory().total * 0.8) // _MIB
    name = a.name or f"{a.pool}-{os.uname().nodename}-{os.getpid()}"
    return WorkerSettings(
        gateway=a.gateway.rstrip("/"),
        store=a.store,
        name=name,
        cache_dir=a.cache_dir or Path(tempfile.gettempdir()) / f"flowmesh-worker-{a.name}",
        pool=a.pool,
        token="" if a.token_file else _token(parser),
        token_file=a.token_file,
        gateway_ca=a.gateway_ca,
        store_ca=a.store_ca,
        store_grace_s=a.store_grace,
        memory_mib=memory_mib,
        sleep_mib=memory_mib // 2 if a.sleep_mib is None else a.sleep_mib,
        cpus=a.cpus or os.cpu_count() or 1,
        price_nanousd_per_hour=nano_usd(price or "0"),
        price_estimated=price is None or a.price_estimated,
        spot=a.spot,
        power_w=a.power_w,
        idle_w=a.idle_w,
        cache_bytes=a.cache_bytes,
        allow_user_code=a.allow_user_code,
        sandbox_minimum=a.sandbox_minimum,
        labels=dict(a.label),
        zone=a.zone,
        node=a.node,
        grace_s=a.grace,
        peer_port=a.peer_port,
        orphan_timeout_s=a.orphan_timeout,
        cpu_only=a.cpu_only,
        health_dir=a.health_dir,
    )


def _token(parser: argparse.ArgumentParser) -> str:
    """Returns the token of the environment; exits with a message if it is not valid."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token.isprintable():
        parser.error(f"{TOKEN_VARIABLE} {_NO_TOKEN}")
    return token


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m flowmesh_worker", description="Run a FlowMesh worker."
    )
    add = p.add_argument
    add("--gateway", required=True, help="ws:// or wss://HOST:PORT of the control plane")
    add("--gateway-ca", type=Path, metavar="FILE", help="PEM certificates to trust for wss://")
    add("--store", required=True, help="address of the store, or https:// of the blob service")
    grace_help = "age from which the control plane deletes blobs that nothing names"
    add("--store-grace", type=float, metavar="S", default=DEFAULT_GRACE_S, help=grace_help)
    add("--store-ca", type=Path, metavar="FILE", help="PEM certificates to trust for the bucket")
    add("--name", default="", help="name, unique; begins with the pool and -, or is the pod's")
    add("--pool", default="local", help="the pool it belongs to")
    add("--token-file", type=Path, help=f"file with the token (default: ${TOKEN_VARIABLE})")
    add("--memory-mib", type=int, default=0, help="host memory for engines (default: 80%%)")
    sleep_help = "part of it for engines that are asleep; 0 has none sleep (default: half)"
    add("--sleep-mib", type=int, metavar="MIB", help=sleep_help)
    add("--cpus", type=int, default=0, help="CPU threads (default: all)")
    add("--price-usd-per-hour", help="price of the whole worker")
    add("--price-estimated", action="store_true", help="the price is typical, not billed")
    add("--spot", action="store_true", help="the provider may take this machine away at any time")
    add("--power-w", type=float, default=0.0, help="power under load, used without a meter")
    add("--idle-w", type=float, default=0.0, help="power without work")
    add("--cache-dir", type=Path, help="directory for the local cache and scratch files")
    add("--cache-bytes", type=int, default=_DEFAULT_CACHE_BYTES, help="size of the local cache")
    add("--allow-user-code", action="store_true", help="run user code on this worker")
    add(
        "--sandbox-minimum",
        default="",
        choices=tuple(SandboxLevel),
        help="run no user code where its sandbox is weaker",
    )
    add("--label", action="append", default=[], type=_label, metavar="K=V", help="may be repeated")
    add("--zone", default="", help="zone of the machine, for locality")
    add("--node", default="", help="name of the machine")
    add("--peer-port", type=int, default=0, help="take values of other workers' stages here")
    add("--grace", type=float, default=30.0, help="seconds that attempts may run after SIGTERM")
    add("--orphan-timeout", type=float, default=300.0, help="exit after S without control plane")
    add("--cpu-only", action="store_true", help="do not use the machine's devices")
    add("--health-dir", type=Path, help="directory for the files alive and ready")
    return p


def _label(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key, value
