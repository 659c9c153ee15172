"""How long the calls of an engine take by how many run at once, learned from those that end.

For engines that generate no tokens: embeddings and searches. Calls that began before the engine was
warm are left out: the first ones compile, allocate and fill caches.
"""

from flowmesh_core.serving.profile import BatchProfile

WARM_AFTER = 3
"""Calls that end before a replica is warm."""
_WEIGHT = 0.2
_MOST_TIMES = 2.0
"""One call counts as at most so many times what is known, so that a single slow one says little."""
_LEAST_S = 1e-6


class CallProfile:
    """The measured times of one replica's calls.

    Attributes:
        profile: seconds of a call by the number that run, at powers of two; None while too few
            calls have ended, and for an engine that generates tokens.
    """

    def __init__(self) -> None:
        self.profile: BatchProfile | None = None
        self._ended = 0
        self._warm_s = 0.0
        self._generates = False

    def observe(self, began_s: float, ended_s: float, running: int, tokens_out: int) -> None:
        """Records a call that succeeded.

        Args:
            began_s: when it began to run, by a clock that never goes back.
            ended_s: when it ended.
            running: calls that ran as it began, this one too.
            tokens_out: generated tokens.
        """
        if tokens_out:
            self._generates, self.profile = True, None
        if self._generates:
            return
        self._ended += 1
        if self._ended <= WARM_AFTER:
            self._warm_s = ended_s
        elif began_s >= self._warm_s:
            self._add(1 << (max(1, running).bit_length() - 1), max(ended_s - began_s, _LEAST_S))

    def _add(self, running: int, seconds: float) -> None:
        known = self.profile or BatchProfile.of({1: max(seconds / running, _LEAST_S)})
        bounded_s = min(seconds, _MOST_TIMES * known.at(running))
        self.profile = known.updated(running, bounded_s, _WEIGHT)
