"""The quota of a namespace as the control plane reads it."""

from enum import StrEnum

import msgspec


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What each namespace that a ``FlowMeshQuota`` selects may have.

    Attributes:
        namespaces: selected by name; ``*`` is every one.
        labels: labels of further selected namespaces; empty for none.
        weight: in fair shares; a namespace without a quota has 1.
        unfinished_runs: runs that have not ended.
        steps_per_run: steps of one run after expansion, imports included.
        actions_in_flight: actions of its runs that are looked up, wait, run or are published; a new
            run is not accepted while there are more.
        requests_per_second, request_burst: requests of one user to the API; how many at once.
        submissions_per_minute: runs and audits that one user submits to the API.
        plans_per_minute: forecasts that one user asks for.
        open_watches: runs that one user watches at once.
        open_uploads: uploads of one user at once.
        stored_bytes: content in the namespace's own scope.
        uploaded_bytes_per_day: in 24 hours, counted by the hour.
        user_code_calls: attempts of user code at once.
        workers: that run attempts of the namespace at once; None for no limit.
        nanousd_per_day: what its runs pay in 24 hours, counted by the hour; None for no limit.
    """

    name: str
    namespaces: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    weight: float = 1.0
    unfinished_runs: int = 200
    steps_per_run: int = 100_000
    actions_in_flight: int = 50_000
    requests_per_second: float = 20.0
    request_burst: int = 100
    submissions_per_minute: int = 60
    plans_per_minute: int = 30
    open_watches: int = 20
    open_uploads: int = 4
    stored_bytes: int = 1 << 40
    uploaded_bytes_per_day: int = 100 << 30
    user_code_calls: int = 16
    workers: int | None = None
    nanousd_per_day: int | None = None


class QuotaUnit(StrEnum):
    """What a limit counts, where it is not plain numbers."""

    BYTES = "bytes"
    USD = "usd"


class QuotaLimit(msgspec.Struct, frozen=True):
    """One limit of a namespace.

    Attributes:
        used: how much of it is used now; None for what is counted over time or by user.
        unit: left out for plain numbers.
    """

    name: str
    most: float
    used: float | None = None
    unit: QuotaUnit | msgspec.UnsetType = msgspec.UNSET


class QuotaUsage(msgspec.Struct, frozen=True):
    """What a namespace may have, and has; answers ``GET /v1/quota``.

    Attributes:
        quota: the name of the ``FlowMeshQuota`` that applies; empty where nothing is bounded.
        weight: in fair shares.
    """

    namespace: str
    quota: str = ""
    weight: float = 1.0
    limits: tuple[QuotaLimit, ...] = ()
