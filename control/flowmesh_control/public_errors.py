"""What users see of errors of the store: what happened and what helps, and not where the store is.

Paths and addresses of the store are the administrator's; the log has the whole error.
"""

import re

from flowmesh_core.errors import FlowMeshError, StoreError

_LOCATION = re.compile(r"[a-z][a-z0-9+]*://[^\s'\")]+|(?<![\w.])/[\w.@+-]+(/[\w.@+=-]+)*")
"""An address, or an absolute path."""


def public_error(error: FlowMeshError) -> FlowMeshError:
    """Returns an error as users see it: itself, where it names no place of the store."""
    texts = (error.message, error.where, error.remedy)
    if not isinstance(error, StoreError) or not any(map(_LOCATION.search, texts)):
        return error
    message, remedy = (_LOCATION.sub("(the store)", t) for t in (error.message, error.remedy))
    where = "store" if _LOCATION.search(error.where) else error.where
    return FlowMeshError(message, where=where, remedy=remedy)
