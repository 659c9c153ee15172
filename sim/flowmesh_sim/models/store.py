"""The simulated store: published results, existing blobs, and faults.

It follows the rules of the action cache and the blob store: the first usable publication wins, an
expired or unreadable result is replaced one generation higher, a look-up goes scope by scope, an
existing blob is not written again. Callers add the times of requests.
"""

from collections.abc import Callable, Collection, Iterable

import msgspec

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.models.content import SimContents

Key = tuple[str, Digest]


class SimStore:
    """All durable data except the records of runs.

    Attributes:
        results: by scope and action.
        torn: results that cannot be read: truncated, or changed.
        blobs: existing blobs with their sizes; ``ever`` has also the deleted ones.
        damaged: existing blobs that are truncated or corrupt, which readers detect.
        put_s: when a blob was last written.
        down: every request fails (503) and is retried.
        refuses: the share of requests that fail temporarily.
        races: the share of publications that another writer precedes.
        slow_s: additional time of every request.
        published: every successful publication: scope, action, generation.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        """Starts empty and without faults."""
        self._clock = clock
        self.contents = SimContents()
        self.results: dict[Key, ActionResult] = {}
        self.torn: set[Key] = set()
        self.blobs: dict[Digest, int] = {}
        self.ever_stored: set[Digest] = set()
        self.damaged: set[Digest] = set()
        self.put_s: dict[Digest, float] = {}
        self.down = False
        self.refuses = 0.0
        self.races = 0.0
        self.slow_s = 0.0
        self.published: list[tuple[str, Digest, int]] = []

    def look_up(
        self,
        key: ActionKey,
        scopes: Iterable[str],
        not_before_s: float,
        now_s: float,
        min_trust: int = 0,
    ) -> ActionResult | None:
        """Returns the first result that is readable, young enough, trusted and not expired."""
        for scope in scopes:
            found = self._usable((scope, key.action_id), now_s)
            if (
                found is not None
                and found.created_s >= not_before_s
                and found.provenance.trust >= min_trust
            ):
                return found
        return None

    def _usable(self, place: Key, now_s: float) -> ActionResult | None:
        found = self.results.get(place)
        if found is None or place in self.torn or (found.expires_s and found.expires_s <= now_s):
            return None
        return found

    def publish(
        self,
        key: ActionKey,
        result: ActionResult,
        *,
        replace: bool,
        now_s: float = 0.0,
        not_before_s: float = 0.0,
        min_trust: int = 0,
    ) -> tuple[ActionResult, bool]:
        """Writes a result conditionally; returns the stored result and whether this write won."""
        place = (key.scope, key.action_id)
        existing = self._usable(place, now_s)
        good = (
            existing is not None
            and existing.created_s >= not_before_s
            and existing.provenance.trust >= min_trust
        )
        newer = replace and existing is not None and existing.generation < result.generation
        if existing is not None and good and not newer:
            return existing, False
        last = self.results.get(place)
        known = 0 if last is None or place in self.torn else last.generation
        stored = msgspec.structs.replace(result, generation=known + 1)
        self.results[place] = stored
        self.torn.discard(place)
        self.published.append((key.scope, key.action_id, stored.generation))
        return stored, True

    def put(self, artifact: Artifact, inline: Iterable[Digest] = ()) -> None:
        """Stores an artifact's blobs, except those inside a result."""
        within = set(inline)
        for blob in artifact.blobs():
            if blob not in within:
                self.put_blob(blob, artifact.size_bytes)

    def put_blob(self, blob: Digest, size_bytes: int) -> None:
        """Stores one blob; an existing one, damaged or not, only gets a new age."""
        self.blobs[blob] = size_bytes
        self.ever_stored.add(blob)
        self.put_s[blob] = self._clock()

    def lose(self, blob: Digest) -> None:
        """Deletes a blob."""
        self.blobs.pop(blob, None)
        self.damaged.discard(blob)

    def discard(self, blobs: Iterable[Digest]) -> None:
        """Deletes the blobs that do not match their digest."""
        for blob in self.damaged.intersection(blobs):
            self.lose(blob)

    def missing(self, blobs: Iterable[Digest]) -> list[Digest]:
        """Returns the blobs that do not exist, in order, without reading any."""
        return sorted(b for b in blobs if b not in self.blobs)

    def unreadable(self, blobs: Collection[Digest]) -> list[Digest]:
        """Returns the blobs that are missing or damaged, in order."""
        return sorted(b for b in blobs if b not in self.blobs or b in self.damaged)
