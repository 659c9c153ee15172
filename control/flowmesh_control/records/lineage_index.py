"""The lineage index: derivations by their outputs and by their inputs.

A run's derivations are written when it ends, before ``final`` and off the path of dispatch, as
write-once records of a few hundred each (``lineage_keys``). A derivation with very many inputs is
sharded instead: it is written whole by its outputs, while each shard by input has only its own
inputs (``partial``). Otherwise a join of a thousand inputs would be written a thousand times.
"""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator

import msgspec

from flowmesh_api.v1.lineage import Derivation, Direction, LineageWalk
from flowmesh_control.records.lineage_keys import BY_INPUT, BY_OUTPUT, DIGESTS_MAX, run_key
from flowmesh_control.records.lineage_reader import INDEXES, LineageReader
from flowmesh_core.errors import ConditionFailedError
from flowmesh_core.units import Digest
from flowmesh_store.ports import Records

DERIVATIONS_MAX = 10_000
WRITES_AT_ONCE = 16
"""Records that are written concurrently."""
OF_ONE_RECORD_MAX = 200
"""The most derivations of a record."""
Seen = Callable[[Iterable[str]], Awaitable[frozenset[str]]]
"""Returns those of some namespaces whose runs the user may list."""


class LineageIndex:
    """Writes and walks the index."""

    def __init__(self, records: Records, hidden: Container[str] = frozenset()) -> None:
        """Reads nothing yet.

        Args:
            records: of the store.
            hidden: uids of runs that are left out, because their users deleted them.
        """
        self._records = records
        self._hidden = hidden

    async def write(self, uid: str, found: Iterable[Derivation]) -> None:
        """Indexes a run's derivations; may be repeated.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        plain: list[Derivation] = []
        wide: list[Derivation] = []
        for derivation in found:
            (wide if _is_wide(derivation) else plain).append(derivation)
        sharded = _sharded(uid, wide)
        left = itertools.chain(_of_run(uid, plain), sharded.items())
        count = 1 + len(plain) // OF_ONE_RECORD_MAX + len(sharded)
        if count == 1:
            await self._write_some(left)
            return
        writers = (self._write_some(left) for _ in range(min(WRITES_AT_ONCE, count)))
        for failure in await asyncio.gather(*writers, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _write_some(self, left: Iterator[tuple[str, bytes]]) -> None:
        """Writes records until none is left; several calls run concurrently."""
        for key, data in left:
            with contextlib.suppress(ConditionFailedError):
                await self._records.write(key, data)
            await asyncio.sleep(0)  # a store that answers at once would block the event loop

    async def walk(
        self,
        digest: Digest,
        direction: Direction,
        seen: Seen,
        *,
        limit: int = DERIVATIONS_MAX,
        depth: int = DERIVATIONS_MAX,
    ) -> LineageWalk:
        """Returns all that an artifact was made from (up), or that was made from it (down).

        Args:
            digest: of the artifact.
            direction: up or down.
            seen: runs of other namespaces are skipped, and nothing is followed through them.
            limit: the most derivations.
            depth: the longest chain of derivations.
        """
        reader = self.reader()
        met: set[Digest] = {digest}
        found: dict[tuple[str, str], Derivation] = {}
        frontier = [digest]
        for _ in range(depth):
            if not frontier or len(found) >= limit:
                break
            onward: list[Digest] = []
            made = await self.touching(reader, frontier, direction, seen)
            for derivation in sorted(made, key=_order):
                if found.setdefault((derivation.uid, derivation.step), derivation) is derivation:
                    onward += [d for d in _far_side(derivation, direction) if d not in met]
            frontier = list(dict.fromkeys(onward))
            met.update(frontier)
        # The walk is cut if it stopped at artifacts that have further derivations.
        cut = bool(frontier) and bool(await self.touching(reader, frontier, direction, seen))
        return LineageWalk(digest, direction, tuple(found.values())[:limit], cut=cut)

    def reader(self) -> LineageReader:
        """Returns a reader for one query."""
        return LineageReader(self._records)

    async def makers(self, reader: LineageReader, digest: Digest, seen: Seen) -> list[Derivation]:
        """Returns the derivations that made an artifact; executions before cache hits."""
        return sorted(await self.touching(reader, [digest], Direction.UP, seen), key=_order)

    async def named(self, beginning: str, seen: Seen) -> list[Digest]:
        """Returns the digests with a prefix of at least ``PREFIX_MIN`` digits, of visible runs."""
        made = await LineageReader(self._records).touching([beginning], INDEXES)
        found = [
            d for d in made if any(x.startswith(beginning) for x in (*_outputs(d), *_inputs(d)))
        ]
        visible = await self._visible(found, seen)
        known = {d for made in visible for d in (*_outputs(made), *_inputs(made))}
        return sorted(d for d in known if d.startswith(beginning))

    async def touching(
        self, reader: LineageReader, digests: list[Digest], direction: Direction, seen: Seen
    ) -> list[Derivation]:
        """Returns the derivations that made (up) or used (down) one of these, of visible runs."""
        wanted = set(digests)
        index = BY_OUTPUT if direction is Direction.UP else BY_INPUT
        made = await reader.touching(digests, [index])
        found = [d for d in made if wanted & _near_side(d, direction)]
        whole: dict[tuple[str, str], Derivation] = {}
        for d in await self._visible(found, seen):
            if (d.uid, d.step) not in whole:
                whole[d.uid, d.step] = await reader.whole(d) if d.partial else d
        return list(whole.values())

    async def _visible(self, found: list[Derivation], seen: Seen) -> list[Derivation]:
        """Returns the derivations of visible namespaces and runs."""
        visible = await seen({d.namespace for d in found})
        return [d for d in found if d.namespace in visible and d.uid not in self._hidden]


def _of_run(uid: str, derivations: Iterable[Derivation]) -> Iterator[tuple[str, bytes]]:
    """Yields the records of a run with their keys.

    They are equal for equal derivations, so that repeating a write does nothing.
    """
    number = 0
    some: list[Derivation] = []
    digests: set[str] = set()
    for derivation in derivations:
        own = _digests(derivation)
        if some and (len(some) == OF_ONE_RECORD_MAX or len(digests | own) > DIGESTS_MAX):
            yield run_key(uid, number, digests), msgspec.json.encode(some)
            number += 1
            some, digests = [], set()
        some.append(derivation)
        digests |= own
    if some:
        yield run_key(uid, number, digests), msgspec.json.encode(some)


def _sharded(uid: str, derivations: Iterable[Derivation]) -> dict[str, bytes]:
    """Returns the records of derivations with very many inputs, by key."""
    shards: defaultdict[str, list[bytes]] = defaultdict(list)
    for derivation in derivations:
        encoded = msgspec.json.encode(derivation)
        for shard in {d[:2] for d in _outputs(derivation)}:
            shards[f"{BY_OUTPUT}{shard}/{uid}"].append(encoded)
        for shard, some in _by_shard(derivation.inputs).items():
            part = msgspec.json.encode(_partial(derivation, some))
            shards[f"{BY_INPUT}{shard}/{uid}"].append(part)
    return {key: b"[" + b",".join(encoded) + b"]" for key, encoded in shards.items()}


_Inputs = dict[str, tuple[str, ...]]


def _by_shard(inputs: _Inputs) -> dict[str, _Inputs]:
    """Returns the inputs of each shard, by port."""
    found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port, digests in inputs.items():
        for digest in digests:
            found[digest[:2]][port].append(digest)
    return {s: {port: tuple(ds) for port, ds in ports.items()} for s, ports in found.items()}


def _partial(derivation: Derivation, inputs: _Inputs) -> Derivation:
    """Returns a derivation for a shard that has only some of its inputs."""
    return Derivation(
        uid=derivation.uid,
        run=derivation.run,
        namespace=derivation.namespace,
        step=derivation.step,
        engine=derivation.engine,
        contract=derivation.contract,
        implementation=derivation.implementation,
        inputs=inputs,
        outputs=derivation.outputs,
        time_s=derivation.time_s,
        partial=True,
    )


def _order(derivation: Derivation) -> tuple[bool, float, str, str]:
    """Returns the sort key among equal distances: executions before hits, then by time."""
    return (derivation.hits > 0, derivation.time_s, derivation.uid, derivation.step)


def _near_side(derivation: Derivation, direction: Direction) -> set[Digest]:
    return set(_outputs(derivation) if direction is Direction.UP else _inputs(derivation))


def _far_side(derivation: Derivation, direction: Direction) -> list[Digest]:
    return _inputs(derivation) if direction is Direction.UP else _outputs(derivation)


def _is_wide(derivation: Derivation) -> bool:
    """Whether it has more digests than the record of a run may have."""
    most = len(derivation.outputs) + sum([len(some) for some in derivation.inputs.values()])
    return most > DIGESTS_MAX and len(_digests(derivation)) > DIGESTS_MAX


def _digests(derivation: Derivation) -> set[str]:
    return set(derivation.outputs.values()).union(*derivation.inputs.values())


def _inputs(derivation: Derivation) -> list[Digest]:
    return [Digest(d) for digests in derivation.inputs.values() for d in digests]


def _outputs(derivation: Derivation) -> list[Digest]:
    return list(map(Digest, derivation.outputs.values()))
