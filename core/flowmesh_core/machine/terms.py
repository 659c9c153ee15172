"""What each subscription to an action wants for itself, independent of the others.

A name says what is computed. It does not say how long an attempt may run, how often it is tried or
which worker may run it: those settings bind only the subscription whose step has them (ADR 36).
"""

from typing import Any

import msgspec

from flowmesh_core.fleet.snapshot import SignatureInfo

Question = tuple[tuple[str, ...], float, int]
"""What a look-up asks: the scopes, in order; the time before which results are too old; and the
least trust of the pool that made them."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """The settings of a step that are no part of its actions' names.

    Attributes:
        info: the signature and the requirement that an attempt has where this step is alone.
        signature_params: the parameters that a host of that signature starts with.
        timeout_s: how long an attempt may run; 0 is unlimited. ``own_timeout`` is whether the step
            has it, or its engine's contract.
        attempts: tries after failures of the engine or the store.
        backoff_s: the first delay between them.
        question: where results are looked up, how old they may be (``maxAge``), and how much the
            pool that made them must be trusted (``minTrust``).
    """

    info: SignatureInfo
    signature_params: dict[str, Any]
    timeout_s: float
    own_timeout: bool
    attempts: int
    backoff_s: float
    question: Question

    @property
    def oldest_s(self) -> float:
        """Results created before this time are too old; 0 where any will do."""
        return self.question[1]

    @property
    def min_trust(self) -> int:
        """Results of pools of less trust do not count."""
        return self.question[2]

    def accepts(self, trust: int) -> bool:
        """Whether results of a pool of this trust count."""
        return self.question[2] <= trust


class Subscription(msgspec.Struct, eq=False, gc=False):
    """One part of a step that waits for an action, with its own terms and counts.

    Attributes:
        since_s: when it began, on the machine's own clock (``State.observed_s``).
        ready_s: when it could first be placed.
        answered: its look-up has been answered, or it needs none.
        failures: failed tries by kind, of eligible attempts that ended while it was subscribed.
        losses: those of them that lost their worker or host; ``failed_loads`` of them while it
            loaded.
        second_opinion: a failure of the work was reported by a pool of little trust, and the next
            attempt decides.
    """

    terms: Terms
    since_s: float
    ready_s: float
    answered: bool = False
    failures: dict[str, int] = {}
    losses: int = 0
    failed_loads: int = 0
    second_opinion: bool = False
