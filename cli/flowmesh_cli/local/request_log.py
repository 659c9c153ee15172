"""Checks the request log in a store, without a control plane, and reads the log's settings."""

import asyncio
from collections.abc import Mapping, Sequence

from flowmesh_api.v1.keys import PublicKey
from flowmesh_api.v1.request_log import RequestLogCheck
from flowmesh_control.request_log.signatures import decode_public_key
from flowmesh_control.request_log.verification import check_log
from flowmesh_core.errors import FlowMeshError
from flowmesh_store.store import open_store

VARIABLE = "FLOWMESH_REQUEST_LOG"


def check_store(url: str, public_keys: Sequence[str]) -> RequestLogCheck:
    """Checks the log of a store.

    Args:
        url: of the store, or the path of a state folder.
        public_keys: whose signatures count, in base64.

    Raises:
        FlowMeshError: a key is malformed, or the store cannot be read.
    """
    for key in public_keys:
        decode_public_key(key)
    keys = [PublicKey("", key) for key in public_keys]
    store = open_store(url)
    try:
        return asyncio.run(check_log(store.records, keys))
    finally:
        store.close()


def logs_requests(environment: Mapping[str, str]) -> bool:
    """Returns whether a local control plane logs requests: unless the variable is ``false``.

    Raises:
        FlowMeshError: it is neither ``true`` nor ``false``.
    """
    text = environment.get(VARIABLE, "").strip().lower() or "true"
    if text not in ("true", "false"):
        raise FlowMeshError(
            f"{text[:80]!r} is neither true nor false",
            where=VARIABLE,
            remedy="correct or remove it",
        )
    return text == "true"
