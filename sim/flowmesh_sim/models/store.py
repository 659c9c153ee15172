"""The bucket in virtual time: published results, which blobs there are, and its bad days.

It keeps the rules of the real action cache and blob store: the first usable publication wins, what
has expired or cannot be read is replaced one generation higher, a look-up goes scope by scope, a
blob that is there is not written again. Times of requests are the callers' to add.
"""

from collections.abc import Callable, Collection, Iterable

import msgspec

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.units import Digest
from flowmesh_sim.models.content import SimContents

Key = tuple[str, Digest]


class SimStore:
    """All that is durable besides the runs' own records.

    Attributes:
        results: by scope and action.
        torn: those of them that cannot be read: truncated, or not what was written.
        blobs: those that are there, with their sizes; ``ever`` were there once.
        damaged: blobs that are there, truncated or with bits flipped: who reads them finds out.
        put_s: when a blob was last written.
        down: nothing answers (503); calls are to be made again.
        refuses: the share of calls that fail for a moment.
        races: the share of publications that another writer comes before.
        slow_s: what every request takes longer.
        published: every write that won: scope, action, generation.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        """Starts empty and well."""
        self._clock = clock
        self.contents = SimContents()
        self.results: dict[Key, ActionResult] = {}
        self.torn: set[Key] = set()
        self.blobs: dict[Digest, int] = {}
        self.ever: set[Digest] = set()
        self.damaged: set[Digest] = set()
        self.put_s: dict[Digest, float] = {}
        self.down = False
        self.refuses = 0.0
        self.races = 0.0
        self.slow_s = 0.0
        self.published: list[tuple[str, Digest, int]] = []

    def look_up(
        self, key: ActionKey, scopes: Iterable[str], not_before_s: float, now_s: float
    ) -> ActionResult | None:
        """The first result that is whole, young enough and has not expired."""
        for scope in scopes:
            found = self._usable((scope, key.action_id), now_s)
            if found is not None and found.created_s >= not_before_s:
                return found
        return None

    def _usable(self, place: Key, now_s: float) -> ActionResult | None:
        found = self.results.get(place)
        if found is None or place in self.torn or (found.expires_s and found.expires_s <= now_s):
            return None
        return found

    def publish(
        self, key: ActionKey, result: ActionResult, *, replace: bool, now_s: float = 0.0
    ) -> tuple[ActionResult, bool]:
        """Writes a result conditionally; what stands then, and whether this write won."""
        place = (key.scope, key.action_id)
        standing = self._usable(place, now_s)
        if standing is not None and not (replace and standing.generation < result.generation):
            return standing, False
        last = self.results.get(place)
        known = 0 if last is None or place in self.torn else last.generation
        made = msgspec.structs.replace(result, generation=known + 1)
        self.results[place] = made
        self.torn.discard(place)
        self.published.append((key.scope, key.action_id, made.generation))
        return made, True

    def put(self, artifact: Artifact, inline: Iterable[Digest] = ()) -> None:
        """Stores an artifact's blobs, except those that travel inside a result."""
        within = set(inline)
        for blob in artifact.blobs():
            if blob not in within:
                self.put_blob(blob, artifact.size_bytes)

    def put_blob(self, blob: Digest, size_bytes: int) -> None:
        """Stores one blob; one that is there, damaged or not, is only young again."""
        self.blobs[blob] = size_bytes
        self.ever.add(blob)
        self.put_s[blob] = self._clock()

    def lose(self, blob: Digest) -> None:
        """A blob is gone."""
        self.blobs.pop(blob, None)
        self.damaged.discard(blob)

    def discard(self, blobs: Iterable[Digest]) -> None:
        """Reads blobs and forgets those that are not what their digest says."""
        for blob in self.damaged.intersection(blobs):
            self.lose(blob)

    def missing(self, blobs: Iterable[Digest]) -> list[Digest]:
        """Those that are not there, in order; nobody reads them for that."""
        return sorted(b for b in blobs if b not in self.blobs)

    def unreadable(self, blobs: Collection[Digest]) -> list[Digest]:
        """Those that whoever reads them does not get, in order."""
        return sorted(b for b in blobs if b not in self.blobs or b in self.damaged)
