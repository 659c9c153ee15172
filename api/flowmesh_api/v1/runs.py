"""Runs: submit, show, change, and read their logs and outputs."""

from typing import Any

import msgspec

Outputs = dict[str, dict[str, Any] | None]
"""By output: ``kind``, ``digest``, ``blob``, ``bytes``, ``reference``, of a data set ``rows``, of
metrics ``value``; several data sets in a row are ``parts``; None where a step was skipped."""


class ResolvedSource(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the address of an input means now, as ``source.resolve`` found it: its port ``pin``.

    Attributes:
        uri: the address.
        revision: of the content: a commit, an etag, the time of a change.
        size: its bytes.
        config, split: of a hub's data set: which part of it; ``files`` are its names and bytes.
    """

    uri: str
    revision: str
    size: int | msgspec.UnsetType = msgspec.UNSET
    config: str | msgspec.UnsetType = msgspec.UNSET
    split: str | msgspec.UnsetType = msgspec.UNSET
    files: list[tuple[str, int]] | msgspec.UnsetType = msgspec.UNSET


class SubmitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/runs`` and of ``POST /v1/plan``.

    Attributes:
        document: the workflow.
        namespace: replaces the document's.
        uploads: references to the content of local files, by input.
        resume: whether an unfinished run of the same document is used.
        submitter: a name of the client's choice for this submission, such as a random one; with it
            the client can leave a run that others submitted too. Empty for none.
        pins: for a plan: by input, what its address means now. A run resolves all by itself.
    """

    document: dict[str, Any]
    namespace: str = ""
    uploads: dict[str, str] = {}
    resume: bool = True
    submitter: str = ""
    pins: dict[str, ResolvedSource] = {}


class RunAccepted(msgspec.Struct, frozen=True):
    """An accepted run.

    Attributes:
        resumed: whether it existed before this request.
    """

    uid: str
    name: str
    namespace: str
    resumed: bool


class CancelBody(msgspec.Struct, frozen=True):
    """The body of ``POST /v1/runs/{uid}/cancel``, which may be empty.

    Attributes:
        reason: shown to users.
        submitter: of the submission that leaves: the run is cancelled only if no other submission
            wants it. Empty to cancel the run for all.
    """

    reason: str = ""
    submitter: str = ""


class DeletedRun(msgspec.Struct, frozen=True):
    """The answer to ``DELETE /v1/runs/{uid}``: the run that is deleted now."""

    uid: str
    name: str
    namespace: str


class AmendBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of ``POST /v1/runs/{uid}/amend``: the fields of a workflow that may change."""

    suspend: bool | None = None
    priority: int | None = None
    budget_usd: str | None = None
    deadline: str | None = None


class RepinnedRun(msgspec.Struct, frozen=True):
    """A run that continues with newer engine versions.

    Attributes:
        versions: engine → ``1.1 -> 2.1``: contract and implementation, before and now.
    """

    uid: str
    versions: dict[str, str]


class StepLogLine(msgspec.Struct, frozen=True):
    """A line that an attempt of a step printed."""

    attempt_id: str
    time_s: float
    text: str
    step: str


class StepStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A step of a run.

    Attributes:
        state: a ``StepState``.
        reason: why it is in this state: a failure kind, ``upstream``, a rejection cause while it
            waits, or empty.
        message: the same in a sentence, with the remedy.
        actions: number of its actions (chunks), as far as known; ``done`` of them ended.
        hits: chunks (or the whole step) that needed no execution; ``in_flight`` those of them that
            joined a running action.
        done_units, total_units: progress inside running attempts, in ``unit``; 0 is unknown.
        tokens_per_s: over the last seconds, of this step's running attempts.
        workers: where it runs.
        paid_nanousd, saved_nanousd: for this run.
        shared_with: namespaces/runs that share the step's results.
        doing: of the attempt that is furthest: ``fetching`` inputs, ``loading`` an engine,
            ``queued`` in it, ``running`` or ``storing``; empty where none has reported.
    """

    path: str
    engine: str
    state: str
    reason: str = ""
    message: str = ""
    actions: int = 0
    done: int = 0
    hits: int = 0
    in_flight: int = 0
    executed: int = 0
    attempts: int = 0
    done_units: float = 0.0
    total_units: float = 0.0
    unit: str = ""
    tokens: int = 0
    tokens_per_s: float = 0.0
    workers: tuple[str, ...] = ()
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    shared_with: tuple[str, ...] = ()
    started_s: float = 0.0
    ended_s: float = 0.0
    matrix: dict[str, Any] = {}
    doing: str = ""


class RunStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run with all its steps.

    Attributes:
        phase: a ``Phase``.
        failed_step, reason, message, remedy, log: of the failure that ended the run.
        counts: steps by state.
        eta_s: predicted seconds to the end; -1 is unknown.
        audit_of: of an audit, the run whose actions it executes again.
    """

    uid: str
    name: str
    namespace: str
    phase: str
    created_s: float
    ended_s: float = 0.0
    steps: tuple[StepStatus, ...] = ()
    counts: dict[str, int] = {}
    actions: int = 0
    executed: int = 0
    hits: int = 0
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    joules: float = 0.0
    joules_estimated: bool = True
    budget_nanousd: int = 0
    deadline_s: float = 0.0
    priority: int = 0
    failed_step: str = ""
    reason: str = ""
    message: str = ""
    remedy: str = ""
    log: tuple[str, ...] = ()
    outputs: Outputs = {}
    eta_s: float = -1.0
    audit_of: str = ""


class RunSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run in a list.

    Attributes:
        phase: a ``Phase``, or ``unreadable`` where a record of it is damaged.
        steps: number of steps; ``completed``, ``failed``, ``skipped`` and ``cancelled`` of them
            have ended so, the others have not ended.
        audit_of: of an audit, the run whose actions it executes again.
    """

    uid: str
    name: str
    namespace: str
    phase: str
    created_s: float
    ended_s: float = 0.0
    steps: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    executed: int = 0
    hits: int = 0
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    message: str = ""
    audit_of: str = ""


class Uploaded(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored content, for use as an input.

    Attributes:
        reference: names it in workflows of the same namespace.
        columns: of a data set.
    """

    reference: str
    kind: str
    digest: str
    size_bytes: int
    rows: int = 0
    columns: tuple[str, ...] = ()
