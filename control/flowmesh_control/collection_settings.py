"""When the store is collected, and what stays; a part of the control plane's settings.

A module of its own, since every command of the CLI imports it.
"""

from dataclasses import dataclass

from flowmesh_store.blobs import DEFAULT_GRACE_S

COLLECTION_INTERVAL_S = 3600.0
RESULT_TTL_S = 30 * 86400.0
RUN_TTL_S = 90 * 86400.0


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """When the leader deletes what nothing needs any more, and how much stays.

    Attributes:
        interval_s: from one collection to the next; 0 for none but those that users ask for.
        grace_s: no blob younger than this is deleted. Each writer must have opened the store
            with the same grace.
        bytes_max: the most bytes of blobs in use and of results; above it the results that were
            used least recently are deleted. 0 for no bound.
        result_ttl_s: how long results are valid where their cache policy has no ttl.
        run_ttl_s: how long the records of a run stay after its end: status, ledger, logs, lineage.
    """

    interval_s: float = COLLECTION_INTERVAL_S
    grace_s: float = DEFAULT_GRACE_S
    bytes_max: int = 0
    result_ttl_s: float = RESULT_TTL_S
    run_ttl_s: float = RUN_TTL_S
