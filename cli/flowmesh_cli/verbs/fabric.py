"""``fmesh workers`` and ``fmesh policies``."""

from collections.abc import Sequence
from pathlib import Path

from flowmesh_api.v1.fabric import CachePolicy, EngineInstanceState, WorkerStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.run import set_policies
from flowmesh_cli.views import formatting
from flowmesh_cli.views.sharing import labels_text, policy_changes, shared_scope, sharing_text
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources
from flowmesh_core.sharing.namespace_selection import selects
from flowmesh_core.sharing.scopes import ScopePlan, plan_scopes

_DEFAULT_NAMESPACE = "default"


def show_workers(*, place: Target, as_json: bool) -> None:
    """Lists the connected workers."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        workers = http.get("/v1/workers", list[WorkerStatus])
    if as_json:
        terminal.answer(workers)
        return
    if not workers:
        terminal.note(no_worker(place))
        return
    headings = ["worker", "state", "device", "memory", "trust", "price/h", "bill", "up"]
    terminal.table(
        [*headings, "engines running"],
        [_row(w) for w in workers],
        right="memory trust price/h bill up",
        cut=["worker", "engines running"],
        optional="trust up memory price/h device bill",
    )
    for worker in workers:
        if worker.store_problem:
            terminal.note(f"{worker.shape.name} takes no new work: {worker.store_problem}")


def no_worker(place: Target) -> str:
    """Returns the message that no worker is connected, and what starts one."""
    if place.is_cluster:
        starts = "pools start workers when there is work (`kubectl get fmwp -A`)"
    else:
        starts = "`fmesh up` or `fmesh run` starts one"
    return f"no worker is connected; {starts}"


def show_policies(*, place: Target, as_json: bool) -> None:
    """Lists the cache policies."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        policies = http.get("/v1/policies", list[CachePolicy])
    if as_json:
        terminal.answer(policies)
        return
    if not policies:
        terminal.note("no cache policy: no namespace shares with another")
        return
    rows = [
        [
            p.name,
            p.scope.value,
            p.group or "-",
            "-" if p.min_trust is None else str(p.min_trust),
            ", ".join([*p.namespaces, *(f"{k}={v}" for k, v in p.labels.items())]),
        ]
        for p in policies
    ]
    terminal.table(["policy", "scope", "group", "min trust", "namespaces"], rows)


def show_own_policies(*, namespace: str, place: Target, as_json: bool) -> None:
    """Shows which policies select a namespace, and with whom it shares results."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = chosen_namespace(http, namespace) or _DEFAULT_NAMESPACE
        policies = http.get("/v1/policies", list[CachePolicy])
    plan = plan_scopes(policies, wanted)
    own = [p for p in policies if selects(p, wanted, {})]
    by_label = [p for p in policies if p.labels and p not in own]
    shared = shared_scope(policies, wanted, plan.publish)
    if as_json:
        terminal.answer(
            {
                "namespace": wanted,
                "scope": plan.publish,
                "policies": [p.name for p in own],
                "shared_with": shared.namespaces,
                "shared_with_labels": shared.labels,
                "policies_by_label": [p.name for p in by_label],
            }
        )
        return
    terminal.text(f"results of namespace {wanted} are {sharing_text(shared)}")
    if own:
        named = ", ".join(p.name for p in own)
        terminal.text(f"  selected by cache policy {named}; {_terms(plan)}")
    for policy in by_label:
        terminal.text(
            f"  cache policy {policy.name} selects namespaces with {labels_text(policy)}:"
            f" scope {policy.scope.value}{' ' + policy.group if policy.group else ''}"
        )


def _terms(plan: ScopePlan) -> str:
    """Returns the other terms of a namespace's policy."""
    return ", ".join(
        [
            f"least trust {plan.min_trust}",
            f"prefix caches {'shared' if plan.shares_prefixes else 'private'}",
            f"runs of other namespaces {'not named' if plan.unattributed else 'named'}",
        ]
    )


def put_policies(files: Sequence[Path], *, place: Target, as_json: bool) -> None:
    """Sets the policies in files; as JSON it prints all policies."""
    terminal = Terminal(as_json=as_json)
    sources = read_sources(WorkflowSelection(files))
    if not sources.policies:
        raise CliError("the files contain no FlowMeshCachePolicy", ExitCode.USAGE)
    with query_fabric(place) as http:
        changes = set_policies(http, sources.policies)
        current = http.get("/v1/policies", list[CachePolicy])
    if as_json:
        terminal.answer(current)
        return
    for before, after in changes:
        terminal.text(f"cache policy {after.name} {policy_changes(before, after)}")


def delete_policy(name: str, *, place: Target, as_json: bool) -> None:
    """Deletes a policy; as JSON it prints the remaining ones."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        policies = http.get("/v1/policies", list[CachePolicy])
        remaining = [p for p in policies if p.name != name]
        if len(remaining) == len(policies):
            raise CliError(
                f"no cache policy {name!r}{nearest(name, [p.name for p in policies])}",
                ExitCode.NOT_FOUND,
            )
        http.call("PUT", "/v1/policies", query={"only": True}, document=remaining)
    if as_json:
        terminal.answer(remaining)
    else:
        terminal.text(f"cache policy {name} is deleted")


def _state(instance: EngineInstanceState) -> str:
    return "asleep" if instance.asleep else instance.state


def _row(worker: WorkerStatus) -> list[str]:
    shape = worker.shape
    instances = ", ".join(f"{one.engine} ({_state(one)})" for one in worker.instances)
    return [
        shape.name,
        worker.state,
        f"{shape.devices} x {shape.device_class}" if shape.devices > 1 else shape.device_class,
        formatting.size(shape.device_memory_mib << 20),
        str(shape.trust),
        formatting.usd(shape.price_nanousd_per_hour, estimated=shape.price_estimated),
        formatting.usd(worker.bill_nanousd, estimated=shape.price_estimated),
        formatting.seconds(worker.lifetime_s),
        instances or "-",
    ]
