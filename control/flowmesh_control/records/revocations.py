"""The revoked content of a store, in memory and under ``revoked/`` (ADR 47).

Read once an epoch: look-ups, admission and downloads ask this set and not the store. A revocation
concerns what was made before it. Content that a namespace stores again afterwards is new content.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from flowmesh_control.errors import ConflictError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import REVOKED, revoked_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import InvalidReferenceError
from flowmesh_core.identity import is_digest
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import ALL_SCOPE, namespace_scope
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore


class Revocation(msgspec.Struct, frozen=True):
    """``revoked/<scope>/<identity>``: an artifact that was revoked, and what was made from it.

    Attributes:
        blob: the digest of its bytes.
        namespace: whose results and runs are concerned; all where empty.
        generation: how often it has been revoked there.
        derived: identities of artifacts that were made from it.
        consents: when a namespace stored the content again, by ``<namespace>/<identity>``.
        blobs: what is to be deleted, by scope, while it is not complete.
        forget: what workers are asked to delete when they connect; none after a consent.
        is_complete: whether everything is deleted; else the next leader completes it.
        document: the signed report.
    """

    identity: Digest
    kind: str
    blob: Digest
    namespace: str
    revoked_s: float
    generation: int = 1
    derived: tuple[Digest, ...] = ()
    consents: dict[str, float] = {}
    blobs: dict[str, tuple[Digest, ...]] = {}
    forget: tuple[Digest, ...] = ()
    is_complete: bool = False
    document: str = ""

    @property
    def key(self) -> str:
        """Its key in the store."""
        scope = namespace_scope(self.namespace) if self.namespace else ALL_SCOPE
        return revoked_key(scope, self.identity)

    @property
    def event(self) -> ContentRevoked:
        """The event that the machine gets."""
        identities = frozenset((self.identity, *self.derived))
        return ContentRevoked(identities, self.revoked_s, self.namespace)

    def concerns(self, namespace: str) -> bool:
        """Whether it holds for a namespace."""
        return self.namespace in ("", namespace)


class Revocations:
    """Every revocation of the store."""

    def __init__(self, records: RecordStore, lineage: LineageIndex, clock: Clock) -> None:
        """Starts empty; :meth:`load` reads the stored ones."""
        self._records = records
        self._lineage = lineage
        self._clock = clock
        self._known: dict[str, Revocation] = {}
        self._of: dict[Digest, tuple[Revocation, ...]] = {}
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Reads every revocation.

        Raises:
            DamagedRecordError: one cannot be read, and what it revokes must not be shown.
        """
        async for key, _ in known_keys(self._records, REVOKED, _identity):
            record = await self._records.read(key)
            if record is not None and not record.is_foreign:
                self._add(decode_record(_decoder, key, record))

    def all(self) -> list[Revocation]:
        """Returns every revocation, in the order of their keys."""
        return [self._known[key] for key in sorted(self._known)]

    def events(self) -> list[ContentRevoked]:
        """Returns the events that the machine gets at its start."""
        return [one.event for one in self.all()]

    def find(self, identity: Digest, namespace: str) -> Revocation | None:
        """Returns the revocation of an artifact itself; an empty namespace is that of all."""
        return next((one for one in self.all() if _is(one, identity, namespace)), None)

    def refuses(self, result: ActionResult) -> bool:
        """Whether a result uses or has what was revoked after it was made."""
        if not self._of:
            return False
        named = (*result.inputs.values(), *(a.digest for a in result.outputs.values()))
        return any(
            one.concerns(result.namespace) and result.created_s <= one.revoked_s
            for digest in named
            for one in self._of.get(digest, ())
        )

    def forgotten(self) -> tuple[Digest, ...]:
        """Returns what a worker that connects must not have on its disk."""
        return tuple(dict.fromkeys(d for one in self._known.values() for d in one.forget))

    async def put(self, revocation: Revocation) -> None:
        """Writes a revocation, which holds at once.

        Raises:
            StoreError: it is not durable; try again.
        """
        async with self._lock:
            await self._write(revocation)

    async def check(self, identity: Digest, scope: str) -> None:
        """Refuses content that is revoked for a namespace.

        What the namespace stored again, or a run made again, since then is accepted.

        Args:
            identity: of the content.
            scope: the namespace's own.

        Raises:
            InvalidReferenceError: it is revoked.
        """
        for one in self._of.get(identity, ()):
            if not _concerns_scope(one, scope):
                continue
            consent_s = one.consents.get(f"{scope}/{identity}", 0.0)
            if consent_s <= one.revoked_s and not await self._made_since(identity, one):
                raise InvalidReferenceError(
                    "its content was revoked",
                    where=identity[:12],
                    remedy="upload it again, which is new content; what was made before stays "
                    "revoked",
                )

    async def consent(self, identity: Digest, scope: str) -> None:
        """Records that a namespace has stored revoked content again: it is new content.

        Args:
            identity: of the content.
            scope: the namespace's own.

        Raises:
            ConflictError: the revocation is being carried out.
        """
        for found in self._of.get(identity, ()):
            if not _concerns_scope(found, scope):
                continue
            if not found.is_complete:
                raise ConflictError(
                    "this content is being revoked",
                    where=identity[:12],
                    remedy="upload it again when the revocation has ended",
                )
            async with self._lock:
                one = self._known[found.key]
                consents = {**one.consents, f"{scope}/{identity}": self._clock()}
                await self._write(msgspec.structs.replace(one, consents=consents, forget=()))

    async def _made_since(self, identity: Digest, one: Revocation) -> bool:
        """Whether a run that was not concerned has made this content since."""

        async def seen(namespaces: Iterable[str]) -> frozenset[str]:
            return frozenset(n for n in namespaces if one.concerns(n))

        makers = await self._lineage.makers(self._lineage.reader(), identity, seen)
        return any(made.time_s > one.revoked_s for made in makers)

    async def _write(self, revocation: Revocation) -> None:
        await overwrite(self._records, revocation.key, msgspec.json.encode(revocation))
        self._add(revocation)

    def _add(self, revocation: Revocation) -> None:
        self._known[revocation.key] = revocation
        found: dict[Digest, tuple[Revocation, ...]] = {}
        for one in self._known.values():
            for digest in (one.identity, *one.derived):
                found[digest] = (*found.get(digest, ()), one)
        self._of = found


def _is(one: Revocation, identity: Digest, namespace: str) -> bool:
    return one.identity == identity and one.namespace == namespace


def _concerns_scope(one: Revocation, scope: str) -> bool:
    return not one.namespace or namespace_scope(one.namespace) == scope


def _identity(key: str) -> str | None:
    identity = key.rpartition("/")[2]
    return identity if is_digest(identity) else None


_decoder = msgspec.json.Decoder(Revocation)
