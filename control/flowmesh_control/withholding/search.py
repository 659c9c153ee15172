"""Searches the published results of all scopes by their provenance.

There is no index: every record is read, 64 at once, and whole steps that have a selected result
among their parts are selected too. Progress is logged.
"""

import logging
import time
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.keys import ACTIONS
from flowmesh_store.store import Store

log = logging.getLogger("flowmesh.control")

LOGGED_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A selected result and where it is stored.

    Attributes:
        result: without outputs and parameters, since there may be many.
        identities: of its outputs.
    """

    scope: str
    result: ActionResult
    identities: frozenset[Digest]

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{ACTIONS}/{self.scope}/{self.result.action_id}"


@dataclass(slots=True)
class SearchOutcome:
    """What a search found; ``read`` counts the results that it looked at."""

    read: int = 0
    found: list[FoundResult] = field(default_factory=list)


async def search(store: Store, selection: ResultSelection) -> SearchOutcome:
    """Returns the published results of a selection, in the order of scopes and actions.

    Results that nothing believes (without a valid seal) are passed over.

    Args:
        store: with sealed records.
        selection: which results.

    Raises:
        StoreUnavailableError: something could not be read.
    """
    outcome = SearchOutcome()
    whole: list[FoundResult] = []
    logged = time.monotonic()

    async def read(key: str) -> ActionResult | None:
        return decoded(await store.records.read(key))

    async for key, result in in_batches(store.records.keys(f"{ACTIONS}/"), read):
        outcome.read += 1
        if time.monotonic() - logged > LOGGED_EVERY_S:
            logged = time.monotonic()
            log.info("search: %d results read, %d selected", outcome.read, len(outcome.found))
        scope = key.split("/")[1]
        if result is None or key != f"{ACTIONS}/{scope}/{result.action_id}":
            continue
        if selection.selects(result):
            outcome.found.append(_found(scope, result))
        elif result.provenance.parts:
            whole.append(_found(scope, result))
    made = {one.result.provenance.attempt_id for one in outcome.found} - {""}
    outcome.found += [
        one for one in whole if any(p.attempt_id in made for p in one.result.provenance.parts)
    ]
    return outcome


def _found(scope: str, result: ActionResult) -> FoundResult:
    identities = frozenset(artifact.digest for artifact in result.outputs.values())
    small = msgspec.structs.replace(result, outputs={}, inline={}, params={}, inputs={})
    return FoundResult(scope, small, identities)
