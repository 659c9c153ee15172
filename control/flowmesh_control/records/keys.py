"""The keys of the control plane's records.

::

    runs/<uid>/spec                     what was submitted, with plan, scopes and versions; a run
                                        is accepted once this exists
    runs/<uid>/pins                     plan, scopes and versions of runs of earlier releases
    runs/<uid>/repins/<epoch>-<n>       later pins; those of the last amendment count
    runs/<uid>/ledger/<epoch>-<seq>     segments; seq 0 says which older segments count
    runs/<uid>/logs                     the last lines that its steps printed
    runs/<uid>/cancelled                the request to cancel it, with the reason
    runs/<uid>/final                    the verdict and the last status
    runs/<uid>/audit                    of an audit, its report; written before final
    quarantine/<class>                  signature classes whose results did not repeat
    withheld/<scope>/<action>           results that look-ups do not find
    format                              the identity scheme of all content
    epochs/<n>                          leaderships
    policies/<name>                     cache policies
    services/<namespace>/<name>         services, with the release that they serve
    accounts/<epoch>                    the fabric's accounts
    service-charges/<day>/<epoch>       what services paid on a day that is over
    ended/<epoch>-<n>                   lines of runs that have ended; may be lost
    deleted/<uid>                       a run that was deleted, and what it paid
    taken/<epoch>                       runs that a leader took over
    learned/<epoch>                     the cost model; may be lost
    used/results                        when results were last used; may be lost
    suspects/runs/<uid>                 deaths of leaders that were working on a run
    suspects/workers/<name>             the same of a worker
    revoked/<scope>/<identity>          content that was revoked in a namespace's scope, or in all
    keys/current                        the master keys that records are sealed with; not sealed
    keys/public                         the public keys of signatures, also those of former keys
    openai/files/<namespace>/<id>       uploaded files of OpenAI's API
    openai/batches/<namespace>/<id>     its batches; each is a run once its file was read
    request-log/<day>/<epoch>-<seq>.jsonl   segments of the request log; signed, not sealed
    request-log/beginning               where the request log begins; signed, not sealed
"""

import re
from datetime import date

from flowmesh_store.keys import ACTIONS

_EPOCH_DIGITS = 8
_SEQ_DIGITS = 8
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_SEGMENT = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)

RUNS = "runs/"
EPOCHS = "epochs/"
POLICIES = "policies/"
ACCOUNTS = "accounts/"
SERVICE_CHARGES = "service-charges/"
LEARNED = "learned/"
ENDED = "ended/"
DELETED = "deleted/"
TAKEN = "taken/"
LINEAGE = "lineage/"
QUARANTINE = "quarantine/"
WITHHELD = "withheld/"
STORE_FORMAT = "format"
SUSPECT_RUNS = "suspects/runs/"
SUSPECT_WORKERS = "suspects/workers/"
CURRENT_KEYS = "keys/current"
PUBLIC_KEYS = "keys/public"
REVOKED = "revoked/"
USED = "used/"
USED_RESULTS = f"{USED}results"
OPENAI = "openai/"
SERVICES = "services/"
REQUEST_LOG = "request-log/"
REQUEST_LOG_BEGINNING = f"{REQUEST_LOG}beginning"
SEALED_PREFIXES = (
    f"{ACTIONS}/", RUNS, EPOCHS, POLICIES, ACCOUNTS, LEARNED, ENDED, DELETED, TAKEN, QUARANTINE,
    LINEAGE, SUSPECT_RUNS, SUSPECT_WORKERS, PUBLIC_KEYS, WITHHELD, REVOKED, OPENAI, SERVICES, USED,
    SERVICE_CHARGES,
)  # fmt: skip
"""Begin the keys of all sealed records."""


def spec_key(uid: str) -> str:
    """Returns the key of a run's spec."""
    return f"runs/{uid}/spec"


def pins_key(uid: str) -> str:
    """Returns the key of a run's pins, where an earlier release wrote them."""
    return f"runs/{uid}/pins"


def repins_key(uid: str, epoch: int, number: int) -> str:
    """Returns the key of pins that a re-pin wrote."""
    return f"runs/{uid}/repins/{epoch:0{_EPOCH_DIGITS}d}-{number:0{_SEQ_DIGITS}d}"


def cancelled_key(uid: str) -> str:
    """Returns the key of the request to cancel a run."""
    return f"runs/{uid}/cancelled"


def final_key(uid: str) -> str:
    """Returns the key of a run's end."""
    return f"runs/{uid}/final"


def logs_key(uid: str) -> str:
    """Returns the key of the last lines that a run's steps printed."""
    return f"runs/{uid}/logs"


def audit_key(uid: str) -> str:
    """Returns the key of an audit's report."""
    return f"runs/{uid}/audit"


def quarantine_key(signature_class: str) -> str:
    """Returns the key of a signature class in quarantine."""
    return f"{QUARANTINE}{signature_class}"


def withheld_key(scope: str, action_id: str) -> str:
    """Returns the key of the record that says that a result is withheld."""
    return f"{WITHHELD}{scope}/{action_id}"


def revoked_key(scope: str, identity: str) -> str:
    """Returns the key of a revocation; the scope is a namespace's own, or ``all``."""
    return f"{REVOKED}{scope}/{identity}"


def openai_prefix(kind: str, namespace: str = "") -> str:
    """Returns the prefix of a namespace's ``files`` or ``batches``; of all where it is empty."""
    return f"{OPENAI}{kind}/{namespace}/" if namespace else f"{OPENAI}{kind}/"


def ledger_prefix(uid: str) -> str:
    """Returns the prefix of the segments of a run's ledger."""
    return f"runs/{uid}/ledger/"


def segment_key(uid: str, epoch: int, seq: int) -> str:
    """Returns the key of a segment; keys sort by epoch, then number."""
    return f"{ledger_prefix(uid)}{epoch:0{_EPOCH_DIGITS}d}-{seq:0{_SEQ_DIGITS}d}"


def parse_segment(key: str) -> tuple[int, int] | None:
    """Returns epoch and number of a segment's key; None for a key of another form."""
    found = _SEGMENT.fullmatch(key.rpartition("/")[2])
    return None if found is None else (int(found[1]), int(found[2]))


def epoch_key(number: int) -> str:
    """Returns the key of a leadership."""
    return f"{EPOCHS}{number:0{_EPOCH_DIGITS}d}"


def policy_key(name: str) -> str:
    """Returns the key of a cache policy."""
    return f"{POLICIES}{name}"


def service_key(namespace: str, name: str) -> str:
    """Returns the key of a service."""
    return f"{SERVICES}{namespace}/{name}"


def accounts_key(epoch: int) -> str:
    """Returns the key of an epoch's accounts."""
    return f"{ACCOUNTS}{epoch:0{_EPOCH_DIGITS}d}"


def service_day_key(day: date, epoch: int) -> str:
    """Returns the key of what services paid on a day, as an epoch counted it."""
    return f"{SERVICE_CHARGES}{day}/{epoch:0{_EPOCH_DIGITS}d}"


def parse_service_day(key: str) -> date | None:
    """Returns the day of a key of :func:`service_day_key`; None for a key of another form."""
    day, _, epoch = key.removeprefix(SERVICE_CHARGES).partition("/")
    try:
        return date.fromisoformat(day) if _NUMBER.fullmatch(epoch) else None
    except ValueError:
        return None


def ended_key(epoch: int, number: int) -> str:
    """Returns the key of a segment of the index of ended runs."""
    return f"{ENDED}{epoch:0{_EPOCH_DIGITS}d}-{number:0{_SEQ_DIGITS}d}"


def deleted_key(uid: str) -> str:
    """Returns the key of what stays of a deleted run."""
    return f"{DELETED}{uid}"


def taken_key(epoch: int) -> str:
    """Returns the key of the runs that an epoch took over."""
    return f"{TAKEN}{epoch:0{_EPOCH_DIGITS}d}"


def parse_epoch(key: str) -> int | None:
    """Returns the epoch at the end of a key; None for a key without one."""
    name = key.rpartition("/")[2]
    return int(name) if _NUMBER.fullmatch(name) else None


def learned_key(epoch: int) -> str:
    """Returns the key of an epoch's cost model."""
    return f"{LEARNED}{epoch:0{_EPOCH_DIGITS}d}"
