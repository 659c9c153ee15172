"""``fmesh why`` and ``explain``: show why a step waits and how it was placed."""

from collections.abc import Iterable

from flowmesh_api.v1.fabric import WorkerStatus
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_api.v1.why import Explanation, Why
from flowmesh_cli.attach import query_fabric, unserved_text
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.placement import show_explanation
from flowmesh_cli.views.why import show_story
from flowmesh_core.lifecycle_states import ENDED


def show_why(step: str, *, run: str, place: Target, as_json: bool) -> None:
    """Shows why a step waits, and what it reused and ran."""
    terminal = Terminal(as_json=as_json)
    unserved = unserved_text(place)
    with query_fabric(place) as http:
        uid, found = find_step(http, *split_step(step, run))
        story = http.get(f"/v1/runs/{uid}/why", Why, step=found.path)
        names = {r.uid: f"{r.namespace}/{r.name}" for r in all_runs(http)}
    if unserved and story.step.state not in ENDED:
        terminal.note(unserved)
    if as_json:
        terminal.answer(story)
    else:
        show_story(terminal, story, names)


def show_placement(step: str, *, run: str, place: Target, as_json: bool) -> None:
    """Shows the candidate workers of a step's actions, and where they ran."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid, found = find_step(http, *split_step(step, run))
        explanation = http.get(f"/v1/runs/{uid}/explain", Explanation, step=found.path)
        workers = [] if as_json else http.where_allowed("/v1/workers", list[WorkerStatus]) or []
    if as_json:
        terminal.answer(explanation)
    else:
        show_explanation(terminal, explanation, found, loading(workers, found.engine))


def loading(workers: Iterable[WorkerStatus], engine: str) -> set[str]:
    """Returns the workers on which every instance of an engine is still loading."""
    found = set()
    for worker in workers:
        states = {one.state for one in worker.instances if one.engine == engine}
        if states and states <= {"starting", "loading"}:
            found.add(worker.shape.name)
    return found


def split_step(step: str, run: str) -> tuple[str, str]:
    """Splits ``RUN/STEP`` into run and step; a step without a run belongs to ``run``."""
    name, bracket, instance = step.partition("[")
    named, _, path = name.rpartition("/")
    if run or not named:
        return run, step
    return named, path + bracket + instance


def find_step(http: ApiClient, run: str, step: str) -> tuple[str, StepStatus]:
    """Finds a step by its path, or by its name if it has one instance; returns the run's uid too.

    Raises:
        CliError: the run or step does not exist, or the step has several instances.
    """
    uid = find_run(http, run)
    steps = http.get(f"/v1/runs/{uid}", RunStatus).steps
    exact = [s for s in steps if s.path == step]
    instances = [s for s in steps if s.path.startswith(f"{step}[")]
    found = exact or instances
    if len(found) == 1:
        return uid, found[0]
    if found:
        raise CliError(
            f"{step!r} has {len(found)} instances",
            ExitCode.NOT_FOUND,
            where=uid,
            remedy="name one of " + ", ".join(s.path for s in found[:8]),
        )
    raise CliError(
        f"no step {step!r}{nearest(step, [s.path for s in steps])}",
        ExitCode.NOT_FOUND,
        where=uid,
        remedy="`fmesh status` lists the steps; RUN/STEP names one of another run",
    )
