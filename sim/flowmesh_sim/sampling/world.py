"""A world with one worker that lies, and the parts of the control plane that find it.

Modelled are workers, their results and time. The draw, the decision by three workers, the action
cache, the search by provenance and the withholding are those of the control plane. A result that
was drawn is compared a minute later, and a third worker needs another minute: the liar publishes
meanwhile. In audits it is honest, since it may recognize them.
"""

import heapq
import random
from dataclasses import dataclass, field

from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.withholding.search import search
from flowmesh_control.withholding.withholding import withheld_result
from flowmesh_core.audit.drawing import SampleDraw
from flowmesh_core.audit.majority import OddOne, odd_one
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import ActionResult, Provenance, content_artifact
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.scopes import group_scope
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.store import open_store

SCOPE = group_scope("x")
WORKERS = ("liar", "honest-1", "honest-2", "honest-3")
POOL = "pool"
COMPARED_AFTER_S = 60.0
LIMIT = 5_000
"""The most drawable actions that the liar makes until it must be found."""


@dataclass(slots=True)
class Outcome:
    """What happened.

    Attributes:
        actions: drawable actions that the liar had made when it was found, or until the limit.
        found: whether it was.
        lies: those that it had published, and ``left`` of them that a look-up still finds.
        accused: honest workers that were taken for the liar.
    """

    actions: int = 0
    found: bool = False
    lies: int = 0
    left: int = 0
    accused: int = 0


@dataclass(order=True, slots=True)
class _Comparison:
    due_s: float
    number: int
    action: Digest = field(compare=False)
    worker: str = field(compare=False)
    answer: str = field(compare=False)


class World:
    """One world; the seed decides everything."""

    def __init__(self, seed: int, *, share: float, lie_rate: float) -> None:
        """Starts without results.

        Args:
            seed: of the world's randomness and of the control plane's key.
            share: of the results that is made again.
            lie_rate: of the liar's results that are lies.
        """
        self._random = random.Random(seed)
        self._draw = SampleDraw(KeyRing.of(self._random.randbytes(32)))
        self._share = share
        self._lie_rate = lie_rate
        self._now_s = 0.0
        self._store = open_store("memory:")
        self._withheld = WithheldRecords(self._store)
        self._cache = ActionCache(
            self._store.records, clock=lambda: self._now_s, withheld=self._withheld.hidden
        )
        self._due: list[_Comparison] = []
        self._lies: list[Digest] = []
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        """Lets workers publish a result a second each, until the liar is found or the limit."""
        number = 0
        while not self.outcome.found and self.outcome.actions < LIMIT:
            self._now_s += 1.0
            for worker in WORKERS:
                number += 1
                await self._make(number, worker)
            while self._due and self._due[0].due_s <= self._now_s:
                await self._decide(heapq.heappop(self._due))
        self.outcome.lies = len(self._lies)
        for action in self._lies:
            self.outcome.left += await self._cache.lookup(action, [SCOPE]) is not None
        return self.outcome

    async def _make(self, number: int, worker: str) -> None:
        """Publishes a worker's result of the next action."""
        action = digest_bytes(b"action %d" % number)
        lies = worker == WORKERS[0] and self._random.random() < self._lie_rate
        answer = f"{'lie' if lies else 'truth'} {number}"
        if worker == WORKERS[0]:
            self.outcome.actions += 1
        if lies:
            self._lies.append(action)
        await self._cache.publish(SCOPE, self._result(action, worker, answer))
        if self._draw.draws(action, self._share):
            due_s = self._now_s + 2 * COMPARED_AFTER_S
            heapq.heappush(self._due, _Comparison(due_s, number, action, worker, answer))

    def _result(self, action: Digest, worker: str, answer: str) -> ActionResult:
        output = content_artifact("blob", digest_bytes(answer.encode()))
        return ActionResult(
            action_id=action,
            generation=0,
            engine="modelled",
            contract=1,
            implementation=1,
            inputs={},
            outputs={"blob": output},
            created_s=self._now_s,
            provenance=Provenance(worker=worker, pool=POOL, attempt_id=f"{SCOPE}/{action}/1-1"),
        )

    async def _decide(self, due: _Comparison) -> None:
        """Compares a drawn result with those of two other workers, which are true."""
        truth = {"blob": f"truth {due.number}"}
        published = {"blob": due.answer}
        if published == truth:
            return
        odd = odd_one(published, truth, truth)
        accused = due.worker if odd is OddOne.PUBLISHER else ""
        self.outcome.accused += accused != WORKERS[0]
        self.outcome.found = accused == WORKERS[0]
        await self._withhold(accused)

    async def _withhold(self, worker: str) -> None:
        selection = ResultSelection(pool=POOL, worker=worker, until_s=self._now_s)
        found = (await search(self._store, selection)).found
        await self._withheld.add(withheld_result(one, self._now_s, "found") for one in found)
