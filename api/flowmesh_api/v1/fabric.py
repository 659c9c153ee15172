"""The fabric: workers, accounts, cache policies and the cache."""

from typing import Any, NamedTuple

import msgspec

from flowmesh_api.v1.digest import Digest
from flowmesh_api.v1.enums import Disclosure, PrefixCache, Sharing


class EngineVariant(msgspec.Struct, frozen=True):
    """A combination of identity fields that a worker can serve.

    Attributes:
        engine: the engine's name.
        implementation: ``vllm``, ``transformers``, or empty for engines without the field.
        dtypes: the dtypes it can run.
        batch_invariant: the values of ``batchInvariant`` that it can run.
    """

    engine: str
    implementation: str = ""
    dtypes: tuple[str, ...] = ()
    batch_invariant: tuple[bool, ...] = (True, False)


class EngineVersion(NamedTuple):
    """The versions of an engine in a worker's image, as in its contract."""

    version: int
    implementation: int
    minor: int = 0


class WorkerShape(msgspec.Struct, frozen=True):
    """The properties of a worker; they do not change while it lives.

    Attributes:
        device_class: e.g. ``cpu`` or ``nvidia-h200``; cost models are learned per class.
        devices: number of devices (1 for a CPU worker).
        device_memory_mib: memory of one device; host memory on a CPU.
        cpus: CPU threads.
        price_nanousd_per_hour: integer price of the whole worker.
        price_estimated: whether the price comes from a table.
        power_w: draw under load, of the whole worker; ``idle_w`` without work.
        engines: ``name`` → contract version, implementation version and minor of every engine in
            the image.
        variants: combinations of identity fields that it serves.
        builtin_models: names of the built-in models in the image; None is all.
        sandbox: the level of its sandbox for user code, empty without; ``sandbox_minimum`` is the
            least that its pool allows.
        single_tenant: whether it runs the user code of one tenant only.
        spot: true where its provider may take it away at any time; else unset.
        trust: of its pool, 0 to 3. The control plane sets it; what a worker says does not count.
    """

    name: str
    pool: str
    device_class: str
    device_memory_mib: int
    host_memory_mib: int
    cpus: int
    price_nanousd_per_hour: int
    engines: dict[str, EngineVersion]
    devices: int = 1
    variants: tuple[EngineVariant, ...] = ()
    price_estimated: bool = True
    power_w: float = 0.0
    idle_w: float = 0.0
    zone: str = ""
    node: str = ""
    labels: dict[str, str] = {}
    allows_user_code: bool = False
    libraries: dict[str, str] = {}
    builtin_models: tuple[str, ...] | None = None
    sandbox: str = ""
    sandbox_minimum: str = ""
    single_tenant: bool = False
    trust: int = 2
    spot: bool | msgspec.UnsetType = msgspec.UNSET


class EngineInstanceState(msgspec.Struct, frozen=True, gc=False):
    """A loaded or loading engine on a worker.

    Attributes:
        state: ``starting``, ``loading``, ``ready`` or ``closing``.
        capacity: number of actions that it runs at once.
        memory_mib: its reservation.
        load_s: how long loading took; 0 while it goes on.
        silent_s: seconds since the last heartbeat, where that is longer than usual; else 0.
        asleep: whether it is asleep, or falls asleep: it has its process and its weights, in host
            memory, and has freed its devices. Its ``state`` is ``closing`` then, since nothing may
            join it before it has been woken.
        wake_s: how long its last wake took; absent before the first.
    """

    signature: Digest
    engine: str
    state: str
    capacity: int
    memory_mib: int
    load_s: float = 0.0
    silent_s: float = 0.0
    asleep: bool | msgspec.UnsetType = msgspec.UNSET
    wake_s: float | msgspec.UnsetType = msgspec.UNSET


class Component(msgspec.Struct, frozen=True, gc=False):
    """A model, adapter or tokenizer on a worker.

    Attributes:
        tier: the nearest of ``device``, ``host``, ``disk``.
    """

    digest: Digest
    tier: str
    size_bytes: int


class WorkerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker.

    Attributes:
        state: ``ready``, ``busy``, ``cordoned``, ``draining`` or ``lost``.
        instances: its engine instances.
        attempts: ids of its attempts.
        store_problem: why it cannot reach the store; it is ``cordoned`` until it can.
    """

    shape: WorkerShape
    state: str
    instances: tuple[EngineInstanceState, ...] = ()
    components: tuple[Component, ...] = ()
    attempts: tuple[str, ...] = ()
    last_seen_s: float = 0.0
    lifetime_s: float = 0.0
    bill_nanousd: int = 0
    store_problem: str = ""


class DrainAccepted(msgspec.Struct, frozen=True):
    """The response to ``POST /v1/workers/{name}/drain``."""


class FabricStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole fabric; its bill is receipts + services + fabric + unsettled.

    Attributes:
        rejections: why ready actions were not placed in the last scheduling cycle.
        trouble: why the control plane cannot write; empty where it can.
        unreadable_runs: of the last collection of the store, see :class:`CollectionReport`.
    """

    epoch: int
    workers: int
    ready_actions: int
    running_actions: int
    bill_nanousd: int
    receipts_nanousd: int
    fabric_nanousd: int
    unsettled_nanousd: int
    saved_nanousd: int
    executed: int
    hits_published: int
    hits_in_flight: int
    hits_step_level: int
    rejections: tuple[dict[str, Any], ...] = ()
    trouble: str = ""
    services_nanousd: int = 0
    unreadable_runs: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True):
    """The response to ``GET /healthz``.

    Attributes:
        epoch: of the control plane's leadership.
    """

    epoch: int


class Verify(msgspec.Struct, frozen=True):
    """How results are compared: a share of them is made again on another worker.

    Attributes:
        sample: the share, 0 to 1, of the results that promise to repeat.
        min_trust: the least trust of the pools that make them again.
    """

    sample: float = 0.0
    min_trust: int = 0


class CachePolicy(msgspec.Struct, frozen=True):
    """An administrator's rule for the namespaces that it selects.

    Attributes:
        scope: with whom they share.
        group: the group's name, where the scope is ``group``.
        namespaces: the namespaces by name; ``*`` selects every one.
        labels: namespaces with all of these labels are selected too; none where empty.
        salt: enters the names of their actions; a new salt starts their cache anew.
        ttl_s: how long their results last, in seconds; the store's default where None.
        reference_generation: raising it voids every reference of the scope; outputs show new ones.
        prefix_cache: whether they also share engines' prefix caches, whose speed then shows them
            which prompts others of the scope sent.
        disclosure: whether runs show which runs of other namespaces they share results with;
            where None, only under a scope that is not ``all``.
        min_trust: the least trust of the pools that may make results for the scope; None is 0 for
            a private scope, else 1.
        verify: which results are made again and compared. Of several policies of one scope the
            highest values count.
    """

    name: str
    scope: Sharing = Sharing.PRIVATE
    group: str = ""
    namespaces: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    salt: str = ""
    ttl_s: float | None = None
    reference_generation: int = 0
    prefix_cache: PrefixCache = PrefixCache.PRIVATE
    disclosure: Disclosure | None = None
    min_trust: int | None = None
    verify: Verify = Verify()


class ScopeStats(msgspec.Struct, frozen=True):
    """Published results of one scope."""

    scope: str
    results: int
    size_bytes: int


class CacheStats(msgspec.Struct, frozen=True):
    """What the store contains."""

    blobs: int
    blob_bytes: int
    scopes: tuple[ScopeStats, ...]


class CollectionReport(msgspec.Struct, frozen=True):
    """What a collection deleted, or would delete.

    Attributes:
        dry_run: whether nothing was deleted; the numbers are what would have been.
        blobs: number of blobs before, with ``size_bytes`` in all.
        live: number of blobs in use.
        young: number of unused blobs that are younger than the grace period.
        deleted: number of deleted blobs, with ``deleted_bytes`` in all.
        expired_results: action results deleted because they had expired.
        unfinished: parts of writes that were never completed.
        expired_log_segments: segments of the request log deleted because of their age.
        live_bytes: size of the blobs in use.
        result_bytes: size of the action results that stay.
        evicted_results: action results deleted because the store was above its bound, those first
            that were used least recently.
        expired_runs: runs that ended so long ago that their records were deleted.
        unreadable_runs: for each run whose records cannot be read, which content stays therefore,
            and what to do. No result is evicted while there is one.
    """

    dry_run: bool
    blobs: int = 0
    size_bytes: int = 0
    live: int = 0
    young: int = 0
    deleted: int = 0
    deleted_bytes: int = 0
    expired_results: int = 0
    unfinished: int = 0
    expired_log_segments: int = 0
    live_bytes: int = 0
    result_bytes: int = 0
    evicted_results: int = 0
    expired_runs: int = 0
    unreadable_runs: tuple[str, ...] = ()


class PurgeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/cache/purge``: results of a scope, all or those of one engine."""

    scope: str
    engine: str = ""


class PurgeReport(msgspec.Struct, frozen=True):
    """The number of results that a purge deleted."""

    deleted: int
