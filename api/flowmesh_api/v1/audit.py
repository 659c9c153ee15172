"""Audits: actions executed again and compared, and the quarantine of those that differ."""

from typing import Any

import msgspec

from flowmesh_api.v1.enums import Verdict


class Provenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where and how a result was produced; not part of its identity.

    Attributes:
        trust: of the worker's pool, 0 to 3.
    """

    worker: str = ""
    pool: str = ""
    device_class: str = ""
    attempt_id: str = ""
    libraries: dict[str, str] = {}
    started_s: float = 0.0
    ended_s: float = 0.0
    trust: int = 2


class AuditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/runs/{uid}/audit``: a share of the run's actions, drawn by a seed."""

    share: float = 1.0
    seed: int = 0


class Repetition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an action gave when it was made again: digests by port, and where."""

    outputs: dict[str, str]
    made_by: Provenance


class AuditCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action that an audit executes again.

    Attributes:
        path: its step in the audit's run; ``step`` and ``chunk`` in the audited one (-1: whole).
        scope: of its published result.
        bump: of its signature class, in the audited run.
        outputs: published digests by port.
        published_by: where they were produced.
        doubted: of a check by a third worker, what the second one gave, which differed.
    """

    path: str
    step: str
    chunk: int
    action_id: str
    scope: str
    engine: str
    contract: int
    implementation: int
    determinism: str
    signature_class: str
    fields: dict[str, Any]
    outputs: dict[str, str]
    published_by: Provenance
    published_s: float
    bump: int = 0
    doubted: Repetition | None = None


class AuditSkip(msgspec.Struct, frozen=True):
    """An action that was drawn but cannot be checked, and why."""

    step: str
    chunk: int
    action_id: str
    engine: str
    reason: str


class AuditOrder(msgspec.Struct, frozen=True):
    """The request for an audit, and the actions drawn for it.

    Attributes:
        share: of the ``eligible`` actions; ``seed`` of the draw.
        passed_over: number of actions by class that does not promise to repeat.
        sampled: whether the control plane began it by itself, for a policy's ``verify``.
    """

    run_uid: str
    run: str
    namespace: str
    share: float
    seed: int
    created_s: float
    eligible: int
    checks: tuple[AuditCheck, ...]
    unchecked: tuple[AuditSkip, ...]
    passed_over: dict[str, int]
    sampled: bool = False


class AuditFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one checked action.

    Attributes:
        again: digests by port of what was produced now, by ``again_by``.
        ports: those whose digests differ.
        quarantines: whether its signature class is quarantined because of it.
        detail: why there is no verdict, or why a difference does not quarantine.
    """

    check: AuditCheck
    verdict: Verdict
    again: dict[str, str] = {}
    again_by: Provenance = Provenance()
    ports: tuple[str, ...] = ()
    quarantines: bool = False
    detail: str = ""


class AuditReport(msgspec.Struct, frozen=True):
    """The outcome of an audit, or what it has to check while it runs.

    Attributes:
        uid: of the audit's own run; empty where nothing could be checked.
        phase: a ``Phase``; ``cut_off`` is why it ended early.
        counts: actions by verdict, unchecked ones included.
        quarantined: signature classes that it put into quarantine.
        paid_nanousd: by the user who requested it, as on the receipt of ``uid``.
    """

    uid: str
    order: AuditOrder
    phase: str
    findings: tuple[AuditFinding, ...] = ()
    counts: dict[str, int] = {}
    quarantined: tuple[str, ...] = ()
    paid_nanousd: int = 0
    ended_s: float = 0.0
    cut_off: str = ""


class AuditAccepted(msgspec.Struct, frozen=True):
    """An accepted audit.

    Attributes:
        uid: of its run; empty where nothing can be checked, and ``report`` is complete.
        resumed: whether it was running before this request.
    """

    uid: str
    resumed: bool
    checks: int
    report: AuditReport | None = None


class QuarantineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signature class whose results did not repeat.

    Attributes:
        bump: rises with every quarantine of the class and never falls, so that no result published
            before is found again.
        active: whether its older results are hidden from look-ups; False once it was released.
        since_s: when it was quarantined last.
        audit: the audit that found it, of a step of ``run_uid``; ``action_id`` did not repeat.
        port: an output that differed, ``published`` and ``again`` its digests.
    """

    signature_class: str
    engine: str
    contract: int
    implementation: int
    fields: dict[str, Any]
    bump: int
    active: bool
    since_s: float
    audit: str
    run_uid: str
    step: str
    action_id: str
    port: str
    published: str
    again: str
    published_by: Provenance = Provenance()
    again_by: Provenance = Provenance()
