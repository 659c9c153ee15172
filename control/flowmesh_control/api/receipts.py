"""HTTP handler of the receipts of all runs that a user may list, by pages."""

import asyncio
import logging
from collections.abc import Sequence

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.receipts import Receipt, ReceiptPage
from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.api.authorization import AuthorizedRequest, Route, for_any_user
from flowmesh_control.api.responses import json_response
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_core.errors import DamagedRecordError, FlowMeshError

log = logging.getLogger("flowmesh.control.api")

PAGE_RUNS = 1000
PAGE_LINES = 20_000
"""A page ends after ``PAGE_RUNS`` runs or ``PAGE_LINES`` lines of receipts, whichever is first."""
_AT_ONCE = 16
"""Ledgers that are read concurrently."""


class AllReceipts:
    """Handler of ``/v1/receipts``."""

    def __init__(self, views: RunViews) -> None:
        self._views = views

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [for_any_user(operations.LIST_RECEIPTS, self.receipts)]

    async def receipts(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/receipts?namespace=&after=`` → :class:`ReceiptPage`, oldest run first."""
        query = call.request.query
        after = _cursor(query.get("after", ""))
        known = self._views.summaries(query.get("namespace") or None)
        seen = await call.listable(run.namespace for run in known)
        runs = sorted((r for r in known if r.namespace in seen), key=_position)
        return json_response(await self._page([r for r in runs if _position(r) > after]))

    async def _page(self, runs: Sequence[RunSummary]) -> ReceiptPage:
        found: list[Receipt] = []
        unreadable: list[str] = []
        read = lines = 0
        while read < min(len(runs), PAGE_RUNS) and lines < PAGE_LINES:
            some = runs[read : min(read + _AT_ONCE, PAGE_RUNS)]
            receipts = await asyncio.gather(*(self._receipt(run.uid) for run in some))
            for run, receipt in zip(some, receipts, strict=True):
                if isinstance(receipt, Receipt):
                    found.append(receipt)
                    lines += len(receipt.lines)
                elif receipt is not None:
                    unreadable.append(run.uid)
            read += len(some)
        is_last = read == len(runs)
        next_page = "" if is_last else "{!r}/{}".format(*_position(runs[read - 1]))
        return ReceiptPage(found, next_page, tuple(unreadable))

    async def _receipt(self, uid: str) -> Receipt | DamagedRecordError | None:
        """Returns a run's receipt, or why it cannot be read; None if the run was deleted since.

        ``GET /v1/runs/{uid}/receipt`` names the damaged record.
        """
        try:
            return await self._views.receipt(uid)
        except NotFoundError:
            return None
        except DamagedRecordError as e:
            log.warning("run %s has no receipt: %s", uid, e, extra={"run": uid})
            return e


def _position(run: RunSummary) -> tuple[float, str]:
    """Returns the sort key of a run: its creation, then its uid."""
    return (run.created_s, run.uid)


def _cursor(text: str) -> tuple[float, str]:
    created, _, uid = text.partition("/")
    try:
        return (float(created) if text else float("-inf"), uid)
    except ValueError:
        raise FlowMeshError(
            f"{text[:80]!r} is not a page cursor",
            where="?after=",
            remedy="use `next` of the previous page, or leave it out for the first page",
        ) from None
