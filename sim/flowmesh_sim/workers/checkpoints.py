"""Checkpoints of simulated attempts: each is just the share of the work that it saves."""

from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import Checkpoint
from flowmesh_core.units import Digest
from flowmesh_sim.models.content import SimCheckpoint
from flowmesh_sim.models.devices import MIB
from flowmesh_sim.models.store import SimStore

CHECKPOINT_MIB = 64


def write_checkpoint(store: SimStore, attempt_id: str, done: float) -> Checkpoint:
    """Stores and returns a checkpoint that saves the share ``done`` of an attempt's work."""
    digest = digest_bytes(f"checkpoint {attempt_id} {done!r}".encode())
    size = CHECKPOINT_MIB * MIB
    store.contents.by_digest[digest] = SimCheckpoint(done)
    store.put_blob(digest, size)
    store.contents.scopes.setdefault(digest, set()).add(attempt_id.split("/", maxsplit=1)[0])
    return Checkpoint(attempt_id, digest, done, size)


def saved_share(store: SimStore, digest: Digest) -> float:
    """Returns the share of the work that a checkpoint saves; 0 if there is none."""
    found = store.contents.by_digest.get(digest)
    return found.done if isinstance(found, SimCheckpoint) else 0.0
