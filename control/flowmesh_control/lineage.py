"""The lineage index: derivations by what they made and by what they used.

::

    lineage/by-output/<2 hex>/<uid>     derivations of the run with an output digest that begins so
    lineage/by-input/<2 hex>/<uid>      the same for inputs

A run's derivations are written when it ends, before ``final``: off the path of dispatch, at most
512 records however many steps it has, write-once by their key. A question reads one shard. What was
made from very many inputs is written whole by its outputs; by its inputs each shard names its own
ones (``partial``), or a join of a thousand would be written a thousand times.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from enum import StrEnum

import msgspec

from flowmesh_core.errors import ConditionFailedError
from flowmesh_core.lineage import Derivation
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

DERIVATIONS_MAX = 10_000
HANDS = 16
"""So many records are written side by side."""
WHOLE_SHARDS_MAX = 16
"""In so many shards by input a derivation is written whole."""
PREFIX_MIN = 8
"""Of a digest at least so many characters are to be given."""
Seen = Callable[[Iterable[str]], Awaitable[frozenset[str]]]
"""Those of some namespaces whose runs whoever asks may see."""
_decoder = msgspec.json.Decoder(list[Derivation])


class Direction(StrEnum):
    """Which way to walk."""

    UP = "up"
    DOWN = "down"


class Walk(msgspec.Struct, frozen=True):
    """What was found from an artifact.

    Attributes:
        derivations: nearest first, and of these who ran it before who found it.
        cut: whether there is more than was walked.
        others: of an artifact that was followed into one of several runs that made it, how many
            other runs did.
    """

    digest: Digest
    direction: str
    derivations: tuple[Derivation, ...]
    cut: bool = False
    others: dict[Digest, int] = {}


class Made(msgspec.Struct, frozen=True):
    """An artifact that a step of a run made."""

    step: str
    port: str
    kind: str
    digest: Digest
    rows: int
    size_bytes: int


class Lineage:
    """Writes and walks the index."""

    def __init__(self, records: RecordStore) -> None:
        """Takes where the index is."""
        self._records = records

    async def write(self, uid: str, found: Iterable[Derivation]) -> None:
        """Indexes a run's derivations; again is harmless.

        Raises:
            StoreUnavailableError, StoreFullError: call it again.
        """
        shards: defaultdict[str, list[bytes]] = defaultdict(list)
        for derivation in found:
            encoded = msgspec.json.encode(derivation)
            outputs = {d[:2] for d in derivation.outputs.values()}
            inputs = {d[:2] for digests in derivation.inputs.values() for d in digests}
            for shard in outputs:
                shards[f"by-output/{shard}"].append(encoded)
            if len(inputs) <= WHOLE_SHARDS_MAX:
                for shard in inputs:
                    shards[f"by-input/{shard}"].append(encoded)
                continue
            for shard, some in _by_shard(derivation.inputs).items():
                part = msgspec.json.encode(_partial(derivation, some))
                shards[f"by-input/{shard}"].append(part)
        left = iter(shards.items())
        hands = (self._write_some(uid, left) for _ in range(min(HANDS, len(shards))))
        for failure in await asyncio.gather(*hands, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _write_some(self, uid: str, left: Iterator[tuple[str, list[bytes]]]) -> None:
        """Writes shards until none is left; several do so, since a bucket takes its time."""
        for shard, encoded in left:
            with contextlib.suppress(ConditionFailedError):
                data = b"[" + b",".join(encoded) + b"]"
                await self._records.write(f"lineage/{shard}/{uid}", data)
            await asyncio.sleep(0)  # a store that answers at once would hold up the loop

    async def walk(
        self,
        digest: Digest,
        direction: Direction,
        seen: Seen,
        *,
        limit: int = DERIVATIONS_MAX,
        depth: int = DERIVATIONS_MAX,
    ) -> Walk:
        """Everything that an artifact was made from (up), or that was made from it (down).

        Args:
            digest: where to begin.
            direction: which way.
            seen: runs of other namespaces are passed over, and nothing is followed through them.
            limit: at most so many derivations.
            depth: at most so many steps one after the other.
        """
        met: set[Digest] = {digest}
        found: dict[tuple[str, str], Derivation] = {}
        frontier = [digest]
        for _ in range(depth):
            if not frontier or len(found) >= limit:
                break
            onward: list[Digest] = []
            for derivation in sorted(await self._touching(frontier, direction, seen), key=_order):
                if found.setdefault((derivation.uid, derivation.step), derivation) is derivation:
                    onward += [d for d in _far_side(derivation, direction) if d not in met]
            frontier = list(dict.fromkeys(onward))
            met.update(frontier)
        # Where it stopped, what was uploaded leads no further.
        cut = bool(frontier) and bool(await self._touching(frontier, direction, seen))
        return Walk(digest, direction, tuple(found.values())[:limit], cut=cut)

    async def made_by_run(self, uid: str, digest: Digest) -> list[Derivation]:
        """The derivations of a run that made this."""
        made = await self._read(f"lineage/by-output/{digest[:2]}/{uid}")
        return [d for d in made if digest in d.outputs.values()]

    async def makers(self, digest: Digest, seen: Seen) -> list[Derivation]:
        """The derivations of any run that made this: who ran it before who found it."""
        return sorted(await self._touching([digest], Direction.UP, seen), key=_order)

    async def named(self, beginning: str, seen: Seen) -> list[Digest]:
        """Digests that begin so (``PREFIX_MIN`` characters or more), of runs that may be seen."""
        found: list[Derivation] = []
        for index in ("by-output", "by-input"):
            async for derivation in self._shard(index, beginning[:2]):
                sides = (*_outputs(derivation), *_inputs(derivation))
                if any(d.startswith(beginning) for d in sides):
                    found.append(derivation)
        visible = await _of(found, seen)
        known = {d for made in visible for d in (*_outputs(made), *_inputs(made))}
        return sorted(d for d in known if d.startswith(beginning))

    async def _touching(
        self, digests: list[Digest], direction: Direction, seen: Seen
    ) -> list[Derivation]:
        wanted = set(digests)
        index = "by-output" if direction is Direction.UP else "by-input"
        found = [
            d
            for shard in sorted({d[:2] for d in digests})
            async for d in self._shard(index, shard)
            if wanted & _near_side(d, direction)
        ]
        whole: dict[tuple[str, str], Derivation] = {}
        for d in await _of(found, seen):
            if (d.uid, d.step) not in whole:
                whole[d.uid, d.step] = await self._whole(d) if d.partial else d
        return list(whole.values())

    async def _whole(self, partial: Derivation) -> Derivation:
        """The derivation as it stands by its outputs; the partial one where it is gone."""
        output = _outputs(partial)[0]
        made = await self._read(f"lineage/by-output/{output[:2]}/{partial.uid}")
        return next((d for d in made if d.step == partial.step), partial)

    async def _shard(self, index: str, shard: str) -> AsyncIterator[Derivation]:
        async for key in self._records.keys(f"lineage/{index}/{shard}/"):
            for derivation in await self._read(key):
                yield derivation

    async def _read(self, key: str) -> list[Derivation]:
        record = await self._records.read(key)
        return [] if record is None else _decoder.decode(record.data)


async def _of(found: list[Derivation], seen: Seen) -> list[Derivation]:
    """Those of namespaces that may be seen."""
    visible = await seen({d.namespace for d in found})
    return [d for d in found if d.namespace in visible]


_Inputs = dict[str, tuple[Digest, ...]]


def _by_shard(inputs: _Inputs) -> dict[str, _Inputs]:
    """Those of each shard, by port."""
    found: defaultdict[str, defaultdict[str, list[Digest]]] = defaultdict(lambda: defaultdict(list))
    for port, digests in inputs.items():
        for digest in digests:
            found[digest[:2]][port].append(digest)
    return {s: {port: tuple(ds) for port, ds in ports.items()} for s, ports in found.items()}


def _partial(derivation: Derivation, inputs: _Inputs) -> Derivation:
    """What a shard by input has to say of a derivation of which other shards have inputs, too."""
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
    """Of equal distance: who ran it before who found it, and the earlier first."""
    return (derivation.hits > 0, derivation.time_s, derivation.uid, derivation.step)


def _near_side(derivation: Derivation, direction: Direction) -> set[Digest]:
    return set(_outputs(derivation) if direction is Direction.UP else _inputs(derivation))


def _far_side(derivation: Derivation, direction: Direction) -> list[Digest]:
    return _inputs(derivation) if direction is Direction.UP else _outputs(derivation)


def _inputs(derivation: Derivation) -> list[Digest]:
    return [d for digests in derivation.inputs.values() for d in digests]


def _outputs(derivation: Derivation) -> list[Digest]:
    return list(derivation.outputs.values())
