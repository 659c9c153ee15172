"""``fmesh run``, ``submit`` and ``watch``."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence

import typer

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.fabric import CachePolicy, FabricStatus, WorkerStatus
from flowmesh_api.v1.runs import RunAccepted, RunStatus
from flowmesh_cli.attach import ReachableFabric, attach, query_fabric, require_fabric
from flowmesh_cli.cluster.gateway import ClusterGateway
from flowmesh_cli.cluster.submission import submit_object
from flowmesh_cli.connection.client import ApiClient, UnmeetableError
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import FilesError
from flowmesh_cli.exit_codes import ExitCode, worst
from flowmesh_cli.interrupts import Interrupts, leave
from flowmesh_cli.local.options import LocalOptions, price, tenant_weights
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.follow import POLL_S, JsonProgress, RunFollower, progress_for
from flowmesh_cli.verbs.preflight import refuse_what_no_worker_here_can_run
from flowmesh_cli.verbs.run_summary import show_end
from flowmesh_cli.verbs.validate import compile_sources
from flowmesh_cli.views.runs import show_failure, show_outputs
from flowmesh_cli.views.sharing import policy_changes
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import Source, Sources, need_workflows, read_sources
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.suggestions import did_you_mean

_WAIT_FOR_OTHERS_S = 0.2
_WORKERS_TIMEOUT_S = 20.0
_POLICIES = "/v1/policies"


def run_files(
    chosen: WorkflowSelection,
    *,
    workers: int,
    price_usd_per_hour: str | None,
    weights: Sequence[str] | None,
    policies: bool,
    place: Target,
    as_json: bool,
) -> None:
    """Runs workflows until they end; raises ``typer.Exit`` with the worst of their codes."""
    terminal = Terminal(as_json=as_json)
    sources = checked(chosen)
    if workers:
        refuse_what_no_worker_here_can_run(sources, place)
    by_tenant = tenant_weights(weights)
    for note in unused_weights(by_tenant, sources):
        terminal.note(note)
    options = LocalOptions(
        "run", workers, price(price_usd_per_hour), say=terminal.note, weights=by_tenant
    )
    with (
        attach(place, options) as session,
        Interrupts(at_once=lambda: abort(session)) as interrupts,
    ):
        if not session.is_owner and (unused := options.unused_text()):
            terminal.note(unused)
        if policies:
            note_replaced_policies(terminal, set_policies(session.http, sources.policies))
        else:
            remove_policies(session.http, terminal)
        if any(s.plan and (s.plan.budget_nanousd or s.plan.deadline_s) for s in sources.workflows):
            wait_for_workers(session.http)
        submitter = secrets.token_hex(8)
        accepted = [submit(session.http, s, submitter) for s in sources.workflows]
        for run in accepted:
            if run.resumed:
                terminal.note(f"{run.namespace}/{run.name} resumes as {run.uid}")
        runs = follow(session, [a.uid for a in accepted], terminal, interrupts, submitter)
        show_end(terminal, session.http, runs)
        wait_for_others(session, terminal, interrupts)
    code = ExitCode.INTERRUPTED if interrupts.asked else worst(runs)
    if code:
        raise typer.Exit(code)


def submit_files(chosen: WorkflowSelection, *, place: Target, as_json: bool) -> None:
    """Submits workflows to the running fabric."""
    terminal = Terminal(as_json=as_json)
    sources = checked(chosen)
    with require_fabric(place) as http:
        note_replaced_policies(terminal, set_policies(http, sources.policies))
        accepted = [submit(http, s) for s in sources.workflows]
    if as_json:
        terminal.answer(accepted)
        return
    for run in accepted:
        resumed = " (already running)" if run.resumed else ""
        terminal.text(f"{run.uid}  {run.namespace}/{run.name}{resumed}")
    if terminal.is_live:
        named = f" {accepted[0].uid}" if len(accepted) > 1 else ""
        terminal.note(f"`fmesh watch{named}` follows it, `fmesh logs -f` shows its output")


def watch_run(run: str, *, place: Target, as_json: bool) -> None:
    """Follows a run; Ctrl-C leaves it running."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid = find_run(http, run)
        progress = JsonProgress(terminal) if as_json else progress_for(terminal)

        def reconnect() -> None:
            if isinstance(http, ClusterGateway):
                http.reconnect()
            else:
                http.get("/v1/fabric", FabricStatus)

        def exit_at_once() -> None:
            leave(ExitCode.INTERRUPTED, f"{uid} keeps running")

        with Interrupts(at_once=exit_at_once) as interrupts:
            try:
                runs = RunFollower(lambda: http, reconnect, progress, interrupts).follow(
                    [uid], cancels=False
                )
            finally:
                progress.close()
    if runs[0].phase not in ENDED_PHASES:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not as_json:
        show_outputs(terminal, runs[0])
        if runs[0].phase == Phase.FAILED:
            show_failure(terminal, runs[0])
    if code := worst(runs):
        raise typer.Exit(code)


def unused_weights(weights: Iterable[str], sources: Sources) -> Iterator[str]:
    """Yields warnings about weights of tenants without a workflow: probably misspelt names."""
    tenants = sorted({s.title.partition("/")[0] for s in sources.workflows})
    for tenant in weights:
        if tenant not in tenants:
            suggestion = did_you_mean(tenant, tenants)
            yield f"--weight {tenant}: no workflow belongs to this tenant{suggestion}"


def checked(chosen: WorkflowSelection) -> Sources:
    """Reads and compiles files before anything is started.

    Raises:
        FilesError: lists every problem in them.
    """
    sources = read_sources(chosen)
    plans = compile_sources(need_workflows(sources))
    for source, plan in zip(sources.workflows, plans, strict=True):
        source.plan = plan
    return sources


def wait_for_workers(http: ApiClient) -> None:
    """Waits until a worker is connected: without one no cost and no time can be predicted."""
    end = time.monotonic() + _WORKERS_TIMEOUT_S
    while not http.get("/v1/workers", list[WorkerStatus]) and time.monotonic() < end:
        time.sleep(POLL_S)


def submit(http: ApiClient, source: Source, submitter: str = "") -> RunAccepted:
    """Uploads a workflow's local inputs and submits it; ``submitter`` names the submission.

    Raises:
        FilesError: admission found problems, or terms that cannot be met; each has its place in
            the file.
    """
    if isinstance(http, ClusterGateway):
        return submit_object(http, source)
    upload_inputs(http, source)
    document = {
        "document": source.document.value,
        "uploads": source.uploads,
        "submitter": submitter,
    }
    try:
        return http.ask("POST", "/v1/runs", RunAccepted, query={"check": True}, document=document)
    except SpecError as e:
        raise FilesError(source.refused_lines(e.problems)) from None
    except UnmeetableError as e:
        raise source.unmeetable(e.message) from None


def set_policies(
    http: ApiClient, policies: Sequence[Source]
) -> list[tuple[CachePolicy | None, CachePolicy]]:
    """Sets cache policies; existing runs keep the rules that they were admitted with.

    Returns:
        Each with the one of its name that was there, if there was one.
    """
    rules = [source.policy.rule() for source in policies if source.policy is not None]
    if not rules:
        return []
    before = {p.name: p for p in http.get(_POLICIES, list[CachePolicy])}
    after = {p.name: p for p in http.ask("PUT", _POLICIES, list[CachePolicy], document=rules)}
    return [(before.get(rule.name), after[rule.name]) for rule in rules]


def note_replaced_policies(
    terminal: Terminal, policies: Iterable[tuple[CachePolicy | None, CachePolicy]]
) -> None:
    """Writes what has changed of the policies that were there."""
    for before, after in policies:
        if before is not None and before != after:
            terminal.note(f"cache policy {after.name} {policy_changes(before, after)}")


def remove_policies(http: ApiClient, terminal: Terminal) -> None:
    """Removes all cache policies, and says which."""
    names = [p.name for p in http.get(_POLICIES, list[CachePolicy])]
    http.ask("PUT", _POLICIES, list[CachePolicy], query={"only": True}, document=[])
    if names:
        noun = "policies" if len(names) > 1 else "policy"
        terminal.note(f"removed the cache {noun} {', '.join(names)} (--no-policies)")


def follow(
    session: ReachableFabric,
    uids: Sequence[str],
    terminal: Terminal,
    interrupts: Interrupts,
    submitter: str = "",
) -> list[RunStatus]:
    """Follows runs until they end; Ctrl-C cancels them, unless others than the submitter want them.

    Without a submitter it cancels them in any case.
    """
    progress = progress_for(terminal)
    try:
        follower = RunFollower(lambda: session.http, session.reconnect, progress, interrupts)
        return follower.follow(uids, cancels=True, submitter=submitter)
    finally:
        progress.close()


def wait_for_others(session: ReachableFabric, terminal: Terminal, interrupts: Interrupts) -> None:
    """Keeps an owner serving until every command that joined has ended."""
    noted = False
    while not interrupts.asked:
        if session.is_last():
            return
        if not noted:
            terminal.note("serving until the runs that joined have ended; Ctrl-C exits")
            noted = True
        interrupts.wait(_WAIT_FOR_OTHERS_S)


def abort(session: ReachableFabric) -> None:
    """Kills the workers and exits the process; published results stay."""
    session.abandon()
    leave(ExitCode.INTERRUPTED, "exited at once; run the same command to resume")
