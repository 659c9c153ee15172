"""The simulated garbage collection: expired results and unreferenced blobs.

The rules are those of the store's collector and the control plane's cache administration: expired
results, then blobs older than the grace period that no running run, stored result, retained output
or connected worker references.
"""

from flowmesh_control.cache.roots import live_artifacts
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.control.records import SimBucket
from flowmesh_sim.models.store import Key, SimStore


def expire(store: SimStore, now_s: float) -> list[Key]:
    """Deletes expired and unreadable results; returns their keys."""
    expired = [k for k, r in store.results.items() if k in store.torn or 0 < r.expires_s <= now_s]
    for key in expired:
        del store.results[key]
        store.torn.discard(key)
    return expired


def sweep(
    store: SimStore,
    state: State,
    bucket: SimBucket,
    *,
    wall_s: float,
    now_s: float,
    ttl_s: float,
    grace_s: float,
) -> list[Digest]:
    """Deletes unreferenced blobs; returns them.

    Args:
        store: the store.
        state: of the leader.
        bucket: has the ended runs.
        wall_s: the leader's clock, for the age of results and runs.
        now_s: the bucket's clock, for the age of blobs.
        ttl_s: how long outputs of ended runs are retained.
        grace_s: younger blobs are not deleted.
    """
    needed: set[Digest] = set()
    for artifact in _roots(store, state, bucket, wall_s - ttl_s):
        needed.update(artifact.blobs())
    old = [b for b in store.blobs if now_s - store.put_s[b] >= grace_s and b not in needed]
    for blob in old:
        store.lose(blob)
    return old


def _roots(store: SimStore, state: State, bucket: SimBucket, since_s: float) -> list[Artifact]:
    found = [artifact for _, artifact in live_artifacts(state)]
    for result in store.results.values():
        found += result.outputs.values()
    for uid, status in bucket.finals.items():
        if status.ended_s >= since_s:
            found += bucket.outputs[uid]
    return found
