"""Converts a workflow object to a submission for the control plane's admission."""

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
    """Returns the submission of a workflow object, without the fields that the API server adds.

    Args:
        obj: the whole object, not condensed.
        labels: its namespace's labels.
        uploads: references of uploaded inputs, by the input's name.

    Raises:
        SpecError: it is so large that its status might not fit into the object.
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
        check_terms=True,
    )


def words(error: SpecError) -> str:
    """Returns the problems, one a line, as ``fmesh validate`` prints them after the file's name."""
    return "\n".join(_line(p) for p in error.problems)


def _line(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
