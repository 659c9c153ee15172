"""The keys of a run's records.

::

    runs/<uid>/spec                     what was submitted, with plan, scopes and versions; its
                                        presence means accepted
    runs/<uid>/pins                     plan, scopes and versions of runs of earlier releases
    runs/<uid>/repins/<epoch>-<n>       later pins; those of the last amendment count
    runs/<uid>/ledger/<epoch>-<seq>     segments; seq 0 says which older segments count
    runs/<uid>/logs                     the last lines that its steps printed
    runs/<uid>/cancelled                that somebody wants it to stop, and why
    runs/<uid>/final                    the verdict and the last status
    runs/<uid>/audit                    of an audit, what it found; written before final
    quarantine/<class>                  signature classes whose results did not repeat
    epochs/<n>                          leaderships
    policies/<name>                     cache policies
    accounts/<epoch>                    the fabric's accounts
    ended/<epoch>-<n>                   lines of runs that have ended; may be lost
    taken/<epoch>                       runs that a leader took over
    learned/<epoch>                     the cost model; may be lost
"""

import re

_EPOCH_DIGITS = 8
_SEQ_DIGITS = 8
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_SEGMENT = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)

RUNS = "runs/"
EPOCHS = "epochs/"
POLICIES = "policies/"
ACCOUNTS = "accounts/"
LEARNED = "learned/"
ENDED = "ended/"
TAKEN = "taken/"
QUARANTINE = "quarantine/"


def spec_key(uid: str) -> str:
    """What was submitted."""
    return f"runs/{uid}/spec"


def pins_key(uid: str) -> str:
    """What it was compiled to, where its spec does not say."""
    return f"runs/{uid}/pins"


def repins_key(uid: str, epoch: int, number: int) -> str:
    """What it was compiled to later, by the versions of then."""
    return f"runs/{uid}/repins/{epoch:0{_EPOCH_DIGITS}d}-{number:0{_SEQ_DIGITS}d}"


def cancelled_key(uid: str) -> str:
    """That it is to stop; written before it does."""
    return f"runs/{uid}/cancelled"


def final_key(uid: str) -> str:
    """How it ended."""
    return f"runs/{uid}/final"


def logs_key(uid: str) -> str:
    """The last lines that its steps printed."""
    return f"runs/{uid}/logs"


def audit_key(uid: str) -> str:
    """What an audit found."""
    return f"runs/{uid}/audit"


def quarantine_key(signature_class: str) -> str:
    """A signature class whose results did not repeat."""
    return f"{QUARANTINE}{signature_class}"


def ledger_prefix(uid: str) -> str:
    """Where its segments are."""
    return f"runs/{uid}/ledger/"


def segment_key(uid: str, epoch: int, seq: int) -> str:
    """A segment; keys sort by epoch, then number."""
    return f"{ledger_prefix(uid)}{epoch:0{_EPOCH_DIGITS}d}-{seq:0{_SEQ_DIGITS}d}"


def parse_segment(key: str) -> tuple[int, int] | None:
    """Epoch and number of a segment's key; None for a key that is none."""
    found = _SEGMENT.fullmatch(key.rpartition("/")[2])
    return None if found is None else (int(found[1]), int(found[2]))


def epoch_key(number: int) -> str:
    """A leadership."""
    return f"{EPOCHS}{number:0{_EPOCH_DIGITS}d}"


def policy_key(name: str) -> str:
    """A cache policy."""
    return f"{POLICIES}{name}"


def accounts_key(epoch: int) -> str:
    """The fabric's accounts of an epoch."""
    return f"{ACCOUNTS}{epoch:0{_EPOCH_DIGITS}d}"


def ended_key(epoch: int, number: int) -> str:
    """A segment of the index of ended runs."""
    return f"{ENDED}{epoch:0{_EPOCH_DIGITS}d}-{number:0{_SEQ_DIGITS}d}"


def taken_key(epoch: int) -> str:
    """The runs that an epoch took up."""
    return f"{TAKEN}{epoch:0{_EPOCH_DIGITS}d}"


def parse_epoch(key: str) -> int | None:
    """The epoch that a key ends in; None for a key that ends in none."""
    name = key.rpartition("/")[2]
    return int(name) if _NUMBER.fullmatch(name) else None


def learned_key(epoch: int) -> str:
    """The cost model as an epoch last saved it."""
    return f"{LEARNED}{epoch:0{_EPOCH_DIGITS}d}"
