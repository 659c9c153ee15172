"""The sweeper in virtual time: what has expired and what nothing needs goes, by the shipped roots.

The rules are those of the store's collector and the control plane's cache admin: results past
their time, then blobs older than the grace that no live run, kept result, kept output of an ended
run or connected worker names.
"""

from flowmesh_control.cache.roots import held_digests, live_artifacts
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.control.records import SimBucket
from flowmesh_sim.models.store import Key, SimStore


def expire(store: SimStore, now_s: float) -> list[Key]:
    """Deletes results past their time and those that cannot be read; which."""
    gone = [k for k, r in store.results.items() if k in store.torn or 0 < r.expires_s <= now_s]
    for key in gone:
        del store.results[key]
        store.torn.discard(key)
    return gone


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
    """Deletes the blobs that nothing needs; which.

    Args:
        store: where they are.
        state: of the leader.
        bucket: which runs have ended.
        wall_s: the leader's clock, which says how old results and runs are.
        now_s: the bucket's clock, which says how old blobs are.
        ttl_s: outputs of ended runs are kept for so long.
        grace_s: nothing younger is deleted.
    """
    needed = held_digests(state)
    for artifact in _roots(store, state, bucket, wall_s - ttl_s):
        needed.update(artifact.blobs())
    old = [b for b in store.blobs if now_s - store.put_s[b] >= grace_s and b not in needed]
    for blob in old:
        store.lose(blob)
    return old


def _roots(store: SimStore, state: State, bucket: SimBucket, since_s: float) -> list[Artifact]:
    found = live_artifacts(state)
    for result in store.results.values():
        found += result.outputs.values()
    for uid, status in bucket.finals.items():
        if status.ended_s >= since_s:
            found += bucket.outputs[uid]
    return found
