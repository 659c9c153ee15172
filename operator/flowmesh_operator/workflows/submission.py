"""From an object to what is submitted: the document, and what it refers to in the cluster."""

from collections.abc import Mapping
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_control.runs.admission import Submission
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.size import oversized
from flowmesh_operator.kube.informer_cache import Object


def submission(
    obj: Object, labels: Mapping[str, str], uploads: Mapping[str, str] | None = None
) -> Submission:
    """A workflow object as admission takes it: without what the API server adds.

    Args:
        obj: in full.
        labels: of its namespace.
        uploads: references to what was read for its inputs, by the input's name.

    Raises:
        SpecError: it is so large that its status might not fit beside it.
    """
    meta = obj["metadata"]
    document: dict[str, Any] = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "spec": obj["spec"],
    }
    if problems := oversized(document):
        raise SpecError(problems)
    return Submission(
        document=document,
        namespace=meta["namespace"],
        uploads=uploads or {},
        labels=labels,
        uid=meta["uid"],
    )


def words(error: SpecError) -> str:
    """What is wrong, a line each, as ``fmesh validate`` says it behind the file's name."""
    return "\n".join(_line(p) for p in error.problems)


def _line(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
