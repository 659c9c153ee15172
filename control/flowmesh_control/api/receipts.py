"""HTTP handlers of the receipts and charges of what a user may list, by pages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date
from typing import TypeVar

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.charges import Charge, ChargePage
from flowmesh_api.v1.receipts import Receipt, ReceiptPage
from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.api.authorization import AuthorizedRequest, Route, for_any_user
from flowmesh_control.api.responses import json_response
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.records.deleted_runs import DeletedRun, DeletedRuns
from flowmesh_control.records.service_charges import ServiceChargeRecords
from flowmesh_core.accounting.charges import Days, service_charge, utc_day
from flowmesh_core.errors import DamagedRecordError, FlowMeshError

T = TypeVar("T")
log = logging.getLogger("flowmesh.control.api")

PAGE_RUNS = 1000
PAGE_LINES = 20_000
"""A page ends after ``PAGE_RUNS`` runs or ``PAGE_LINES`` lines, whichever is first."""
_AT_ONCE = 16
"""Ledgers that are read concurrently."""


class AllReceipts:
    """Handlers of ``/v1/receipts`` and ``/v1/charges``."""

    def __init__(
        self, views: RunViews, deleted: DeletedRuns, service_charges: ServiceChargeRecords
    ) -> None:
        self._views = views
        self._deleted = deleted
        self._service_charges = service_charges

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            for_any_user(operations.LIST_RECEIPTS, self.receipts),
            for_any_user(operations.LIST_CHARGES, self.charges),
        ]

    async def receipts(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/receipts?namespace=&after=`` → :class:`ReceiptPage`, oldest run first."""
        deleted = await self._deleted_runs()
        runs = await self._listed(call, deleted.values())

        async def receipt(uid: str) -> Receipt:
            gone = deleted.get(uid)
            return await self._views.receipt(uid) if gone is None else gone.receipt

        page = await _page(runs, receipt, lambda receipt: len(receipt.lines))
        return json_response(ReceiptPage(*page))

    async def charges(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/charges?namespace=&run=&since=&until=&after=`` → :class:`ChargePage`."""
        query = call.request.query
        days, uid = (
            Days(_day(query.get("since", ""), "since"), _day(query.get("until", ""), "until")),
            query.get("run", ""),
        )
        deleted = await self._deleted_runs()
        listed = await self._listed(call, deleted.values())
        runs = [r for r in listed if uid in ("", r.uid) and _paid_in(r, days)]

        async def charges(uid: str) -> list[Charge]:
            gone = deleted.get(uid)
            if gone is None:
                return await self._views.charges(uid, days)
            return [c for c in gone.charges if days.has(date.fromisoformat(c.day))]

        found, after, unreadable = await _page(runs, charges, len)
        services, damaged = list[Charge](), list[str]()
        if not uid and not query.get("after"):
            services, damaged = await self._of_services(call, days)
        of_runs = [c for some in found for c in some]
        return json_response(ChargePage(services + of_runs, after, (*damaged, *unreadable)))

    async def _of_services(
        self, call: AuthorizedRequest, days: Days
    ) -> tuple[list[Charge], list[str]]:
        """Returns what services paid in the namespaces that the user may list, by day and name."""
        rows, damaged = await self._service_charges.read(days)
        namespace = call.request.query.get("namespace") or None
        found = [c for c in map(service_charge, rows) if namespace in (None, c.namespace)]
        seen = await call.listable(c.namespace for c in found)
        found.sort(key=lambda c: (c.day, c.namespace, c.name))
        return [c for c in found if c.namespace in seen], damaged

    async def _deleted_runs(self) -> dict[str, DeletedRun]:
        """Returns what stays of deleted runs, by uid: bills go on with it."""
        return {gone.run.uid: gone for gone in await self._deleted.all()}

    async def _listed(
        self, call: AuthorizedRequest, deleted: Iterable[DeletedRun]
    ) -> list[RunSummary]:
        """Returns the runs that the user may list, oldest first, after the page before."""
        query = call.request.query
        after = _cursor(query.get("after", ""))
        namespace = query.get("namespace") or None
        known = self._views.summaries(namespace)
        known += [d.run for d in deleted if namespace in (None, d.run.namespace)]
        seen = await call.listable(run.namespace for run in known)
        runs = sorted((r for r in known if r.namespace in seen), key=_position)
        return [r for r in runs if _position(r) > after]


async def _page(
    runs: Sequence[RunSummary], read: Callable[[str], Awaitable[T]], lines_of: Callable[[T], int]
) -> tuple[list[T], str, tuple[str, ...]]:
    """Reads runs until a page is full; one that was deleted since is left out.

    Returns:
        What was read, where the next page begins, and the runs of which a record is damaged.
    """
    found: list[T] = []
    unreadable: list[str] = []
    done = lines = 0
    while done < min(len(runs), PAGE_RUNS) and lines < PAGE_LINES:
        some = runs[done : min(done + _AT_ONCE, PAGE_RUNS)]
        answers = await asyncio.gather(*(_read(run.uid, read) for run in some))
        for run, answer in zip(some, answers, strict=True):
            if isinstance(answer, DamagedRecordError):
                unreadable.append(run.uid)
            elif answer is not None:
                found.append(answer)
                lines += lines_of(answer)
        done += len(some)
    next_page = "" if done == len(runs) else "{!r}/{}".format(*_position(runs[done - 1]))
    return found, next_page, tuple(unreadable)


async def _read(uid: str, read: Callable[[str], Awaitable[T]]) -> T | DamagedRecordError | None:
    """Returns what is read of a run, or why it cannot be; None if the run was deleted since.

    ``GET /v1/runs/{uid}/receipt`` names the damaged record.
    """
    try:
        return await read(uid)
    except NotFoundError:
        return None
    except DamagedRecordError as e:
        log.warning("run %s has no receipt: %s", uid, e, extra={"run": uid})
        return e


def _paid_in(run: RunSummary, days: Days) -> bool:
    """Whether a run may have paid something on some days."""
    begins_later = days.end is not None and utc_day(run.created_s) >= days.end
    ended = days.first is not None and run.ended_s > 0 and utc_day(run.ended_s) < days.first
    return not begins_later and not ended


def _day(text: str, name: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise FlowMeshError(
            f"{text[:80]!r} is not a day", where=f"?{name}=", remedy="write it as 2026-01-31"
        ) from None


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
