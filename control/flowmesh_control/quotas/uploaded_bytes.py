"""Bounds how many bytes a namespace uploads in a day.

Bytes count as they come, also those of an upload that is refused or cut off in the end. The
accounts store the sums, so that a new leader continues them.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from flowmesh_control.errors import QuotaExceededError, RateExceededError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_core.accounting.daily_totals import DailyTotals, Hours
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.units import bytes_text

LIMIT = "uploaded-bytes-per-day"


class UploadMeter:
    """Counts the bytes of one upload."""

    def __init__(self, uploads: "UploadedBytes", namespace: str) -> None:
        self._uploads = uploads
        self._namespace = namespace

    def count(self, size_bytes: int) -> None:
        """Counts bytes that have come.

        Raises:
            RateExceededError: the namespace has uploaded more than its quota allows.
        """
        self._uploads.count(self._namespace, size_bytes)


class UploadedBytes:
    """What namespaces have uploaded in the last day."""

    def __init__(
        self,
        quotas: Quotas,
        stored: StoredBytes,
        clock: Clock,
        totals: Mapping[str, Hours] | None = None,
    ) -> None:
        """Continues the sums of an earlier leader.

        Args:
            quotas: those in force.
            stored: what namespaces store, which an upload adds to.
            clock: Unix time in seconds.
            totals: as :meth:`current` returned it.
        """
        self._quotas = quotas
        self._stored = stored
        self._clock = clock
        self._totals = DailyTotals(totals)

    def used(self, namespace: str) -> int:
        """Returns what a namespace has uploaded in the last day."""
        return self._totals.total(namespace, self._clock())

    def current(self) -> dict[str, dict[int, int]]:
        """Returns the sums, to be stored."""
        return self._totals.current(self._clock())

    async def begin(self, namespace: str, announced_bytes: int) -> UploadMeter:
        """Returns the meter of a new upload.

        Args:
            namespace: of the upload.
            announced_bytes: its Content-Length; 0 without one.

        Raises:
            QuotaExceededError: the namespace stores too much, or may never upload so much.
            RateExceededError: it has uploaded too much in the last day.
        """
        await self._stored.recount_if_full(namespace)
        self._stored.check(namespace)
        quota = self._quotas.of(namespace)
        if quota is not None:
            most = quota.uploaded_bytes_per_day
            if announced_bytes > most:
                raise self._refused(
                    QuotaExceededError(
                        f"the upload has {bytes_text(announced_bytes)}, and namespace {namespace} "
                        f"may upload {bytes_text(most)} in 24 hours",
                        remedy="put it into a bucket and name it by an s3:// address, or ask an "
                        "administrator",
                        can_pass=False,
                    )
                )
            if self.used(namespace) + max(1, announced_bytes) > most:
                raise self._refused(self._too_much(namespace, most, announced_bytes))
        return UploadMeter(self, namespace)

    def count(self, namespace: str, size_bytes: int) -> None:
        """As :meth:`UploadMeter.count`."""
        quota = self._quotas.of(namespace)
        if quota is None:
            return
        self._totals.add(namespace, size_bytes, self._clock())
        most = quota.uploaded_bytes_per_day
        if self.used(namespace) > most:
            raise self._refused(self._too_much(namespace, most, 0))

    def _refused(self, error: FlowMeshError) -> FlowMeshError:
        self._quotas.refusals[LIMIT] += 1
        return error

    def _too_much(self, namespace: str, most: int, announced_bytes: int) -> RateExceededError:
        now_s = self._clock()
        wait_s = self._totals.wait_s(namespace, most - announced_bytes, now_s)
        more = f", and this upload has {bytes_text(announced_bytes)}" if announced_bytes else ""
        at = datetime.fromtimestamp(now_s + wait_s, UTC)
        return RateExceededError(
            f"namespace {namespace} has uploaded {bytes_text(self.used(namespace))} in 24 hours, "
            f"of at most {bytes_text(most)}{more}",
            wait_s=float(max(1, int(wait_s))),
            remedy=f"try again at {at:%H:%M} UTC, or ask an administrator",
        )
