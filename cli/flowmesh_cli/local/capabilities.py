"""Checks what workers of this installation can run, before a fabric is started.

A base install has no model libraries. ``fmesh run``, ``plan`` and ``serve`` report that at once,
with the command that installs them, instead of starting a worker that cannot run the steps.
"""

import importlib.util
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.installation import install_command, worker_extra
from flowmesh_cli.local.machine import LEAST_MIB, total_mib
from flowmesh_cli.local.options import POOL
from flowmesh_cli.workflows.sources import Source
from flowmesh_control.evaluators.compilation import check_engine_variants
from flowmesh_control.queries.unplaceable import WorkerOffer, step_places, unplaceable_steps
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.fleet.pool_declaration import CPU
from flowmesh_core.graph.plan import Plan, StepPlan
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_worker.engines.registry import NEEDS, Engines, installed_engines
from flowmesh_worker.shape import find_devices
from flowmesh_worker.supported_pythons import unsupported

_NO_IDENTITY = (None, "")


def missing_engines(plans: Sequence[Plan], engines: Engines | None = None) -> list[StepPlan]:
    """Returns the steps whose engines no worker of this installation offers.

    Steps with a condition are not among them, because they may be skipped.

    Args:
        plans: compiled workflows.
        engines: the installed engines; detected if None.
    """
    offered = set((engines or installed_engines()).names())
    return [s for p in plans for s in p.steps if s.engine not in offered and not s.when]


def missing_of(engines: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the engines, by the names of their parts, that no worker here offers."""
    offered = set(installed_engines().names())
    return {part: engine for part, engine in engines.items() if engine not in offered}


def refuse_missing(title: str, engines: Mapping[str, str], *, submit: str = "") -> None:
    """Refuses a workflow or service of which a part cannot run here.

    Args:
        title: the workflow's title, or what is served.
        engines: the engine of each part that cannot run, by the name of the step or component; if
            empty, nothing is refused.
        submit: the command that runs it on a cluster; empty where there is none of one line.

    Raises:
        CliError: names the parts, the missing libraries and the command that installs them.
    """
    if engines:
        remedy = _remedy(set(engines.values()), submit)
        raise CliError(_reason(engines), ExitCode.REFUSED, where=title, remedy=remedy)


def refuse_unhonoured(sources: Sequence[Source], plans: Sequence[Plan]) -> None:
    """Refuses steps whose dtype, implementation or batch invariance no worker here serves.

    Admission refuses them too, but only once a worker is connected and models are being imported.

    Raises:
        FilesError: lists every such step with its place in its file.
    """
    if not any(v not in _NO_IDENTITY for p in plans for s in p.steps for v in s.fields.values()):
        return
    engines, catalog = installed_engines(), load_catalog()
    devices = find_devices()
    classes = {CPU, devices.device_class if devices else CPU}
    shapes = [_shape(engines, name) for name in sorted(classes)]
    problems: list[str] = []
    for source, plan in zip(sources, plans, strict=True):
        assert source.workflow is not None
        try:
            check_engine_variants(source.workflow, plan, catalog, shapes)
        except SpecError as e:
            problems += source.lines(e.problems)
    if problems:
        raise FilesError(problems)


def unplaceable(source: Source, plan: Plan) -> dict[str, list[Problem]]:
    """Returns what no worker here could meet with all of this machine, by the step's path.

    Steps whose engines are not installed are not among them.
    """
    engines, devices = installed_engines(), find_devices()
    shapes = [_shape(engines, CPU)]
    if devices is not None:
        on_devices = _shape(engines, devices.device_class)
        shapes.append(
            replace(on_devices, devices=devices.count, device_memory_mib=devices.memory_mib)
        )
    missing = {step.path for step in missing_engines([plan], engines)}
    return unplaceable_steps(
        plan,
        load_catalog(),
        [WorkerOffer(shape) for shape in shapes],
        step_places(source.document.value),
        ended=missing,
    )


def _reason(engines: Mapping[str, str]) -> str:
    named = ", ".join(f"{part} ({engine})" for part, engine in engines.items())
    wanted = dict.fromkeys(m for engine in engines.values() for m in NEEDS.get(engine, ()))
    absent = [m for m in wanted if importlib.util.find_spec(m) is None]
    why = f"not installed here: {', '.join(absent)}" if absent else "no such engine is installed"
    return f"no worker of this installation can run {named}; {why}"


def _remedy(engines: set[str], submit: str) -> str:
    if not engines & NEEDS.keys():
        return (
            "install the package that provides the engine through a `flowmesh.engines` entry point"
        )
    python = unsupported()
    version = f" ({python})" if python else ""
    return (
        f"{install_command(worker_extra())}{version}; or run it on a cluster whose workers have"
        f" them{f': `{submit}`' if submit else ''}"
    )


def _shape(engines: Engines, device_class: str) -> WorkerShape:
    """Returns the shape of a worker that has all of this machine's memory."""
    memory_mib = max(LEAST_MIB, total_mib())
    return WorkerShape(
        name=f"{POOL}-1",
        pool=POOL,
        device_class=device_class,
        device_memory_mib=memory_mib,
        host_memory_mib=memory_mib,
        cpus=1,
        price_nanousd_per_hour=0,
        allows_user_code=True,
        engines=engines.versions(),
        variants=engines.variants(device_class),
    )
