"""What was made from an artifact, across runs and scopes: results, artifacts and runs.

Three sources together know it: the lineage of ended runs, the action results, which also name the
chunks, and the runs under way. An artifact that equal work on other content made too is not
counted: small results, such as an accuracy of 1, are often equal.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field

from flowmesh_api.v1.lineage import Direction
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_core.dataset import Manifest, dataset_digest, decode_manifest
from flowmesh_core.errors import IdentityError, LostBlobError
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.revocation import revoked_paths
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import is_shared, namespace_scope
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import Record
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class Content:
    """An artifact that is revoked.

    Attributes:
        scopes: where its blob may lie, in this order.
    """

    identity: Digest
    kind: str
    blob: Digest
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    """How something was made: an action result, or a step of a run.

    Attributes:
        key: of the result; empty for a step.
        uid: of the run; empty for a result.
        wide: data sets of several chunks among the outputs, as far as their chunks are known.
        is_own: whether the revocation concerns its namespace.
    """

    inputs: tuple[Digest, ...]
    outputs: tuple[Digest, ...]
    key: str = ""
    uid: str = ""
    wide: tuple[Manifest, ...] = ()
    is_own: bool = True


@dataclass(slots=True)
class Derived:
    """What a revocation concerns.

    Attributes:
        identities: of the artifact, and of all that was made from it.
        chunks: data sets of one chunk that are parts of them.
        results: keys of the action results to delete.
        runs: uids of the runs that used or made any of it.
        others: keys of results of other namespaces that are made from it, which stay.
    """

    identities: set[Digest] = field(default_factory=set)
    chunks: set[Digest] = field(default_factory=set)
    results: dict[str, None] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)


class DerivationFinder:
    """Finds what was made from an artifact."""

    def __init__(self, store: Store, lineage: LineageIndex, state: State) -> None:
        """Keeps the arguments.

        Args:
            store: has the results.
            lineage: of the ended runs.
            state: has the runs under way.
        """
        self._store = store
        self._lineage = lineage
        self._state = state

    async def find(self, content: Content, namespace: str, before_s: float) -> Derived:
        """Returns what was made from an artifact before a time.

        Args:
            content: the artifact.
            namespace: what its runs made; what all made where empty.
            before_s: later results and runs are not concerned.

        Raises:
            StoreError: something could not be read.
        """
        walk = _Walk(self._lineage, self._state, namespace, before_s)
        async for made in self._results(namespace, before_s):
            walk.add(made)
        chunks = await self._chunks(content)
        found = await walk.reach(content.identity, chunks, frozenset())
        elsewhere = await walk.made_elsewhere(content.identity, found)
        if elsewhere:
            found = await walk.reach(content.identity, chunks, elsewhere)
        return found

    async def _results(self, namespace: str, before_s: float) -> AsyncIterator[_Making]:
        records = self._store.records
        own = namespace_scope(namespace)

        async def keys() -> AsyncIterator[str]:
            async for scope in records.folders(f"{ACTIONS}/"):
                if not namespace or scope == own or is_shared(scope):
                    async for key in records.keys(f"{ACTIONS}/{scope}/"):
                        yield key

        async def read(key: str) -> Record | None:
            return await records.read(key)

        async for key, record in in_batches(keys(), read):
            result = decoded(record)
            if result is not None and result.created_s <= before_s:
                yield _of_result(key, result, namespace)

    async def _chunks(self, content: Content) -> list[Digest]:
        if content.kind != "dataset":
            return []
        view = self._store.view(write=content.scopes[0], read=content.scopes)
        with suppress(LostBlobError, IdentityError):
            return chunks_of(decode_manifest(await view.get(content.blob)))
        return []


class _Walk:
    """Follows makings downwards from an artifact."""

    def __init__(
        self, lineage: LineageIndex, state: State, namespace: str, before_s: float
    ) -> None:
        self._lineage = lineage
        self._reader = lineage.reader()
        self._state = state
        self._namespace = namespace
        self._before_s = before_s
        self._using: defaultdict[Digest, list[_Making]] = defaultdict(list)
        self._making: defaultdict[Digest, list[_Making]] = defaultdict(list)

    def add(self, made: _Making) -> None:
        """Adds an action result."""
        for digest in made.inputs:
            self._using[digest].append(made)
        for digest in made.outputs:
            self._making[digest].append(made)

    async def reach(
        self, root: Digest, chunks: Iterable[Digest], spared: AbstractSet[Digest]
    ) -> Derived:
        """Returns all that was made from an artifact.

        Args:
            root: its identity.
            chunks: its parts, as data sets of their own.
            spared: artifacts that are not followed, as other work made them too.
        """
        found = Derived({root}, set(chunks) - {root})
        for digest in (root, *found.chunks):
            _drop(found, self._making.get(digest, ()))
        found.runs.update(made.uid for made in await self._steps([root], Direction.UP))
        wholes, parts = [root], list(found.chunks)
        while wholes or parts:
            makings = _drop(found, (m for d in wholes for m in self._using.get(d, ())))
            makings += await self._steps(wholes, Direction.DOWN) if wholes else []
            found.runs.update(made.uid for made in makings if made.uid)
            makings += self._under_way(found)
            of_parts = _drop(found, (m for d in parts for m in self._using.get(d, ())))
            wholes = _new(found.identities, spared, (d for m in makings for d in m.outputs))
            pieces = [d for m in makings for manifest in m.wide for d in chunks_of(manifest)]
            pieces += (d for m in of_parts for d in m.outputs)
            parts = _new(found.chunks, found.identities, pieces)
        return found

    async def made_elsewhere(self, root: Digest, found: Derived) -> frozenset[Digest]:
        """Returns the artifacts among these that work on other content made too."""
        derived = sorted(found.identities - {root})
        makers = await self._steps(derived, Direction.UP) if derived else []
        makers += (m for d in derived for m in self._making.get(d, ()) if m.is_own)
        revoked = found.identities | found.chunks
        spared = set[Digest]()
        while True:
            free = [m for m in makers if spared.issuperset(revoked.intersection(m.inputs))]
            new = {d for m in free for d in m.outputs if d in revoked and d != root} - spared
            if not new:
                return frozenset(spared)
            spared |= new

    async def _steps(self, digests: list[Digest], direction: Direction) -> list[_Making]:
        """Returns the steps of ended runs that made or used one of these."""

        async def seen(namespaces: Iterable[str]) -> frozenset[str]:
            return frozenset(n for n in namespaces if self._namespace in ("", n))

        steps = await self._lineage.touching(self._reader, digests, direction, seen)
        return [
            _Making(
                tuple(Digest(d) for given in step.inputs.values() for d in given),
                tuple(map(Digest, step.outputs.values())),
                uid=step.uid,
            )
            for step in steps
            if direction is Direction.UP or step.time_s <= self._before_s
        ]

    def _under_way(self, found: Derived) -> list[_Making]:
        """Returns what runs under way have made of it so far."""
        event = ContentRevoked(frozenset(found.identities), self._before_s, self._namespace)
        makings = []
        for uid, run in self._state.runs.items():
            paths = revoked_paths(run, event)
            if paths:
                found.runs.add(uid)
            for path in paths:
                made = [a for a in run.steps[path].outputs.values() if a is not None]
                outputs = tuple(a.digest for a in made)
                wide = tuple(m for a in made if (m := a.manifest) is not None)
                makings.append(_Making((), outputs, uid=uid, wide=wide))
        return makings


def chunks_of(manifest: Manifest) -> list[Digest]:
    """Returns the identities of a data set's chunks as data sets of their own."""
    if len(manifest.chunks) <= 1:
        return []
    return [dataset_digest(Manifest(manifest.schema, (chunk,))) for chunk in manifest.chunks]


def _of_result(key: str, result: ActionResult, namespace: str) -> _Making:
    manifests = (a.manifest for a in result.outputs.values() if a.manifest is not None)
    return _Making(
        tuple(result.inputs.values()),
        tuple(a.digest for a in result.outputs.values()),
        key=key,
        wide=tuple(m for m in manifests if len(m.chunks) > 1),
        is_own=namespace in ("", result.namespace),
    )


def _drop(found: Derived, makings: Iterable[_Making]) -> list[_Making]:
    """Adds results to those to delete; returns the new ones, without other namespaces'."""
    new = []
    for made in makings:
        if not made.is_own:
            found.others.add(made.key)
        elif made.key not in found.results:
            found.results[made.key] = None
            new.append(made)
    return new


def _new(
    known: set[Digest], left_out: AbstractSet[Digest], digests: Iterable[Digest]
) -> list[Digest]:
    """Adds digests to the known ones; returns the new ones."""
    new = [d for d in dict.fromkeys(digests) if d not in known and d not in left_out]
    known.update(new)
    return new
