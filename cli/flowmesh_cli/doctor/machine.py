"""Checks this machine: memory, sandbox of users' code, control groups, ports, clock."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flowmesh_cli.doctor.check import Check, ok, problem, warning
from flowmesh_cli.local.machine import LEAST_MIB, available_mib
from flowmesh_cli.local.ports import HOST, is_free
from flowmesh_core.decoding import decode
from flowmesh_core.protocol.sandbox_levels import SandboxLevel
from flowmesh_worker.engines.code.sandbox_report import SandboxReport

_REPORT = "flowmesh_worker.engines.code.sandbox_report"
_REPORT_TIMEOUT_S = 60.0
_UNSYNCHRONISED = 0x40
_TIMEX_BYTES = 512
_STATUS_OFFSET = 40
_SEPARATES = {
    SandboxLevel.USERNS: "namespaces",
    SandboxLevel.LANDLOCK: "Landlock",
    SandboxLevel.WEAK: "a filter on system calls and limits only",
}
_reports = msgspec.json.Decoder(SandboxReport)


def check_machine(ports: Sequence[int], newest_s: float, now_s: float) -> Iterator[Check]:
    """Yields the checks of this machine.

    Args:
        ports: that ``up`` or ``serve`` are to have; 0 is any.
        newest_s: when something was last written to the state folder, 0 for never.
        now_s: Unix time in seconds.
    """
    yield check_memory(available_mib())
    report = sandbox_report()
    yield check_sandbox(report)
    yield check_groups(report)
    for port in ports:
        yield check_port(port, free=is_free(port))
    yield check_clock(newest_s, now_s, synchronised=_is_synchronised())


def check_memory(shared_mib: int) -> Check:
    """Checks the memory that local workers share, in MiB."""
    if shared_mib >= LEAST_MIB:
        return ok("memory", f"{shared_mib:,} MiB are free for workers")
    return warning(
        "memory",
        f"{shared_mib:,} MiB are free for workers; a worker needs at least {LEAST_MIB:,} MiB",
        "end other programs, or use a machine with more memory",
    )


def check_sandbox(report: SandboxReport | None) -> Check:
    """Checks what separates users' code from the machine.

    Args:
        report: of a process like a worker; None where it ended without one.
    """
    if report is None:
        return warning(
            "sandbox", "its test process ended early", f"see why: {sys.executable} -m {_REPORT}"
        )
    level = SandboxLevel(report.level)
    what = f"users' code is separated by {_SEPARATES[level]} (level {level})"
    if report.no_filter:
        return warning(
            "sandbox",
            f"{what}, without a filter on system calls: {report.no_filter}",
            "use a kernel with seccomp filters, on x86-64 or arm64",
        )
    if level is SandboxLevel.WEAK:
        return warning(
            "sandbox",
            what,
            "use a kernel with Landlock (Linux 6.12 or later), or permit user namespaces; run only"
            " code that you trust until then",
        )
    return ok("sandbox", what)


def check_groups(report: SandboxReport | None) -> Check:
    """Checks whether the memory of a call of users' code can be limited by the kernel."""
    if report is None:
        return warning(
            "cgroup", "the sandbox's test process ended early", "see the check `sandbox`"
        )
    version = f"version {report.groups_version}" if report.groups_version else "none mounted"
    if not report.no_groups:
        return ok("cgroup", f"{version}; memory groups can be created")
    remedy = (
        "run fmesh in a delegated group of its own, such as a container with a writable cgroup file"
        " system"
        if report.groups_version > 1
        else "run fmesh as root"
    )
    return warning(
        "cgroup",
        f"{version}; {report.no_groups}; workers measure the memory of users' code instead",
        remedy,
    )


def check_port(port: int, *, free: bool) -> Check:
    """Checks a port of this machine; 0 is any."""
    if free:
        return ok("port", f"{port} is free" if port else f"{HOST} has free ports")
    if port:
        return problem("port", f"{port} is in use", "choose another one, or 0 for any")
    return problem("port", f"no server can listen on {HOST}", "bring the interface `lo` up")


def check_clock(newest_s: float, now_s: float, *, synchronised: bool) -> Check:
    """Checks the wall clock.

    Args:
        newest_s: when something was last written to the state folder, 0 for never.
        now_s: what the clock shows.
        synchronised: whether the kernel says that the clock follows a reference.
    """
    remedy = "let the clock follow a time server (timedatectl set-ntp true)"
    if newest_s > now_s + 1.0:
        return warning(
            "clock",
            f"it is {newest_s - now_s:,.0f} s behind the newest file of the state folder",
            remedy,
        )
    if not synchronised:
        return warning(
            "clock",
            "it is not synchronised; a bucket refuses requests if the clock is wrong",
            remedy,
        )
    return ok("clock", "it is synchronised")


def newest_change_s(folder: Path) -> float:
    """Returns when a leader last began in a state folder, 0 for never."""
    try:
        return max((f.stat().st_mtime for f in os.scandir(folder / "epochs")), default=0.0)
    except OSError:
        return 0.0


def sandbox_report() -> SandboxReport | None:
    """Returns what a process like a worker's finds; None where it ended without a report."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", _REPORT],
            capture_output=True,
            timeout=_REPORT_TIMEOUT_S,
            check=True,
        )
        return decode(_reports, done.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return None


def _is_synchronised() -> bool:
    """Whether the kernel's clock is synchronised (``adjtimex``); True where it does not say."""
    state = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None).adjtimex(state) < 0:
        return True
    return not int.from_bytes(state.raw[_STATUS_OFFSET : _STATUS_OFFSET + 4], sys.byteorder) & (
        _UNSYNCHRONISED
    )
