"""The trust of a pool, read from its object when a worker joins and each second after.

What a worker says of itself does not count. A pool without an object, or with an invalid one, has
trust 0; so have workers that join with the token of any pool, since nothing proves theirs.
"""

from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.pod_environment import PodEnvironment


class PoolTrusts:
    """Returns the trust of pools; an object is parsed once a generation."""

    def __init__(self, mirror: InformerCache, namespace: str) -> None:
        """Starts without any pool.

        Args:
            mirror: the informer cache.
            namespace: of the pools.
        """
        self._mirror = mirror
        self._namespace = namespace
        self._known: dict[str, tuple[int, int]] = {}

    def __call__(self, pool: str) -> int:
        """Returns the trust of a pool by its name."""
        for uid, obj in self._mirror.pools.items():
            metadata = obj["metadata"]
            if metadata["name"] == pool and metadata["namespace"] == self._namespace:
                return self._trust(uid, obj)
        return 0

    def _trust(self, uid: str, obj: Object) -> int:
        generation, known = obj["metadata"]["generation"], self._known.get(uid)
        if known is None or known[0] != generation:
            known = self._known[uid] = (generation, _parsed(obj))
        return known[1]


def directory_refusal(pool: FlowMeshWorkerPool, around: PodEnvironment) -> str:
    """Returns why a pool must have no pods on this store; empty if it may.

    Whoever mounts a directory reads and writes all of it.
    """
    if not around.store_path or pool.spec.trust_level > 0:
        return ""
    return (
        "spec.trust: a pool of trust 0 needs a bucket, because a store that is a directory cannot"
        " keep its workers from the content of other tenants; install with store.type s3 or"
        " versitygw, or set trust to 1 if these machines are yours"
    )


def _parsed(obj: Object) -> int:
    try:
        found = parse_object({k: v for k, v in obj.items() if k != "status"})
    except SpecError:
        return 0
    return found.spec.trust_level if isinstance(found, FlowMeshWorkerPool) else 0
