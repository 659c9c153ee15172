"""Finds every problem of a file at once: of its text, its objects and its graph.

A document with wrong fields is compiled too, without them, so that one mistake does not hide the
others; problems that only follow from another one are left out.
"""

from flowmesh_api.v1.problems import Problem
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.engine_stages import CheckCall
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.spec.load import ParsedDocument, without_echoes
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_core.spec.workflow import FlowMeshWorkflow

_NO_LIMITS_GIVEN = Limits()


def check_loaded(
    loaded: ParsedDocument,
    catalog: Catalog,
    limits: Limits = _NO_LIMITS_GIVEN,
    check_call: CheckCall = lambda *_: (),
) -> list[Problem]:
    """Returns the problems of one document's object and graph, after those of its text.

    Args:
        loaded: the document as ``load_text`` returned it.
        catalog: the known engines.
        limits: of a workflow.
        check_call: checks what a stage of a service asks of an engine.

    Returns:
        Problems with lines, in order of line.
    """
    problems = list(loaded.problems)
    try:
        if isinstance(loaded.object, FlowMeshWorkflow):
            compile_workflow(loaded.object, catalog, limits, validate_only=True)
        elif isinstance(loaded.object, FlowMeshService):
            compile_service(loaded.object, catalog, None, check_call, validate_only=True)
    except SpecError as e:
        found = without_echoes(e.problems, [*problems, *loaded.document.problems])
        problems += [loaded.document.locate(p) for p in found]
    return sorted(problems, key=lambda p: (p.line, p.column))
