"""The bucket in virtual time: published results, which blobs there are, and its bad days.

It keeps the rules of the real action cache: the first publication wins, a replacement needs a
higher generation, a look-up goes scope by scope. Times of requests are the callers' to add.
"""

from collections.abc import Iterable

from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.run.events import ActionKey
from flowmesh_core.units import Digest
from flowmesh_sim.content import Contents

Key = tuple[str, Digest]


class SimStore:
    """All that is durable besides the runs' own records.

    Attributes:
        results: by scope and action.
        blobs: those that are there, with their sizes; ``ever`` were there once.
        down: nothing answers (503); calls are to be made again.
        refuses: the share of calls that fail for a moment.
        slow_s: what every request takes longer.
        published: every write that won: scope, action, generation.
    """

    def __init__(self) -> None:
        """Starts empty and well."""
        self.contents = Contents()
        self.results: dict[Key, ActionResult] = {}
        self.blobs: dict[Digest, int] = {}
        self.ever: set[Digest] = set()
        self.down = False
        self.refuses = 0.0
        self.slow_s = 0.0
        self.published: list[tuple[str, Digest, int]] = []

    def look_up(
        self, key: ActionKey, scopes: Iterable[str], not_before_s: float, now_s: float
    ) -> ActionResult | None:
        """The first result that is young enough and has not expired."""
        for scope in scopes:
            found = self.results.get((scope, key.action_id))
            if found is None or (found.expires_s and found.expires_s <= now_s):
                continue
            if found.created_s >= not_before_s:
                return found
        return None

    def publish(
        self, key: ActionKey, result: ActionResult, *, replace: bool
    ) -> tuple[ActionResult, bool]:
        """Writes a result conditionally; what stands then, and whether this write won."""
        place = (key.scope, key.action_id)
        standing = self.results.get(place)
        if standing is not None and not (replace and standing.generation < result.generation):
            return standing, False
        self.results[place] = result
        self.published.append((key.scope, key.action_id, result.generation))
        return result, True

    def put(self, artifact: Artifact, inline: Iterable[Digest] = ()) -> None:
        """Stores an artifact's blobs, except those that travel inside a result."""
        within = set(inline)
        for blob in artifact.blobs():
            if blob not in within:
                self.put_blob(blob, artifact.size_bytes)

    def put_blob(self, blob: Digest, size_bytes: int) -> None:
        """Stores one blob."""
        self.blobs[blob] = size_bytes
        self.ever.add(blob)

    def lose(self, blob: Digest) -> None:
        """A blob is gone."""
        self.blobs.pop(blob, None)

    def missing(self, blobs: Iterable[Digest]) -> list[Digest]:
        """Those that are not there, in order."""
        return sorted(b for b in blobs if b not in self.blobs)
