"""How large a workflow may be as an object of a cluster.

``fmesh validate --kubernetes`` checks it, and the operator before it accepts a workflow.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from flowmesh_api.v1.problems import Problem

MOST_OBJECT_BYTES = 1_200_000
"""As JSON. etcd refuses requests beyond 1.5 MiB, and the largest status must fit in too."""


def oversized(document: Mapping[str, Any]) -> list[Problem]:
    """Returns the problem of a workflow that is too large, or none.

    Args:
        document: as its user wrote it, without fields that the API server adds.
    """
    size = len(orjson.dumps(document))
    if size <= MOST_OBJECT_BYTES:
        return []
    message = (
        f"the workflow has {size} bytes as JSON, of at most {MOST_OBJECT_BYTES} that a cluster"
        " keeps in one object; put rows into a file or a ConfigMap, and like steps into a matrix"
    )
    return [Problem("spec", message)]
