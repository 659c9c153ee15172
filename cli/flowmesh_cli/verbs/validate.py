"""``fmesh validate`` and ``fmesh graph``: check and draw files without a fabric."""

from collections.abc import Sequence

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import FilesError
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.preflight import refuse_what_no_worker_here_can_run
from flowmesh_cli.views import formatting
from flowmesh_cli.workflows.row_files import read_columns
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import Source, need_workflows, read_sources
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import Plan
from flowmesh_core.graph.render import mermaid as as_mermaid
from flowmesh_core.graph.render import text_tree
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.secrets import SecretLocation
from flowmesh_core.spec.size import oversized
from flowmesh_core.spec.workflow import FlowMeshWorkflow
from flowmesh_sdk.local_inputs import local_inputs


def validate_files(
    chosen: WorkflowSelection, *, place: Target, as_json: bool, kubernetes: bool = False
) -> None:
    """Checks files as admission does, as far as that needs no upload.

    Args:
        chosen: the files.
        place: where they would run.
        as_json: whether the result is JSON.
        kubernetes: whether to check for `kubectl apply`, in place of the workers here.

    Raises:
        FilesError: lists every problem in them.
        CliError: they are valid, and no worker here can run one of them (``REFUSED``).
    """
    terminal = Terminal(as_json=as_json)
    sources = read_sources(chosen)
    if wrong := [line for s in sources.services for line in s.lines(s.row_problems())]:
        raise FilesError(wrong)
    plans = compile_sources(sources.workflows)
    for source, plan in zip(sources.workflows, plans, strict=True):
        source.plan = plan
    pairs = zip(sources.workflows, plans, strict=True)
    if kubernetes and (wrong := [line for s, plan in pairs for line in _cluster_problems(s, plan)]):
        raise FilesError(wrong)
    if not kubernetes:
        refuse_what_no_worker_here_can_run(sources, place)
    if as_json:
        terminal.answer(
            {
                "workflows": [
                    {"name": p.name, "namespace": p.namespace, "steps": len(p.steps)} for p in plans
                ],
                "policies": [s.document.value["metadata"]["name"] for s in sources.policies],
                "pools": [s.document.value["metadata"]["name"] for s in sources.pools],
                "quotas": [s.document.value["metadata"]["name"] for s in sources.quotas],
                "services": [s.document.value["metadata"]["name"] for s in sources.services],
            }
        )
        return
    for source, plan in zip(sources.workflows, plans, strict=True):
        terminal.text(
            f"{source.file}: {source.title}: {formatting.count(len(plan.steps), 'step')}, valid"
        )
    others_by_kind = (
        ("cache policy", sources.policies),
        ("pool", sources.pools),
        ("quota", sources.quotas),
        ("service", sources.services),
    )
    for what, others in others_by_kind:
        for source in others:
            name = source.document.value["metadata"]["name"]
            terminal.text(f"{source.file}: {what} {name}, valid")


def _cluster_problems(source: Source, plan: Plan) -> list[str]:
    """Returns what a cluster would refuse in a workflow that `fmesh run` accepts."""
    document = source.document.value
    problems = [
        Problem(
            f"spec.inputs.{name}.{kind}",
            f"{text} is a file of this machine: `fmesh submit` uploads it; for kubectl use s3://,"
            " https://, hf://, a cas: reference or, for a small data set, a configMap",
        )
        for name, kind, text in local_inputs(document["spec"])
    ]
    problems += [*_secrets_without_place(plan), *oversized(document)]
    return source.lines(problems)


def _secrets_without_place(plan: Plan) -> list[Problem]:
    """Returns the secrets of which a workflow does not say where a cluster has them."""
    named = {name: step.path for step in reversed(plan.steps) for name in step.secrets}
    missing = [(SecretLocation.parse(name), path) for name, path in sorted(named.items())]
    return [
        Problem(
            f"spec.secrets.{secret.name}",
            f"the workflow does not say where the secret {secret.name} of {path} is: add"
            f" {{name: {secret.object}, key: {secret.name}}}, the name and key of a Secret",
        )
        for secret, path in missing
        if not secret.key
    ]


def draw_files(chosen: WorkflowSelection, *, mermaid: bool, as_json: bool) -> None:
    """Draws the graphs of workflows."""
    terminal = Terminal(as_json=as_json)
    sources = read_sources(chosen)
    plans = compile_sources(need_workflows(sources))
    if as_json:
        terminal.answer(plans)
        return
    for plan in plans:
        terminal.text(as_mermaid(plan) if mermaid else text_tree(plan))


def compile_sources(workflows: Sequence[Source]) -> list[Plan]:
    """Compiles workflows to check or draw them, without their uploads.

    Raises:
        FilesError: lists every problem in them.
    """
    catalog = load_catalog()
    plans: list[Plan] = []
    wrong: list[str] = []
    for source in workflows:
        columns, problems = read_columns(source.document.value, source.folder)
        if problems:
            wrong += source.lines(problems)
            continue
        try:
            workflow = parse_object(source.document.value)
            assert isinstance(workflow, FlowMeshWorkflow)
            plans.append(compile_workflow(workflow, catalog, columns=columns, validate_only=True))
        except SpecError as e:
            wrong += source.lines(e.problems)
    if wrong:
        raise FilesError(wrong)
    return plans
