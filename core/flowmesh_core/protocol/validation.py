"""Checks the values of a worker's message, after the decoder has checked the types.

The gateway calls it for every message before anything else reads it, so that nothing behind it can
raise. A worker of this release never sends what is refused here. Whose attempts the ids name, and
how long ago they were assigned, are the gateway's checks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.dataset.manifest import FORMAT, Manifest, dataset_digest
from flowmesh_core.errors import BY_IDENTITY, FailureKind, IdentityError
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.content import content_identity
from flowmesh_core.identity.digest import digest_bytes, is_digest
from flowmesh_core.protocol import checks
from flowmesh_core.protocol.checks import MessageProblem
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    EngineInstanceState,
    EngineVariant,
    EngineVersion,
    Hello,
    LogLine,
    ServingReplicaState,
    Sync,
    WorkerMessage,
    WorkerShape,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest

PHASES = frozenset({"fetching", "loading", "queued", "running", "storing"})
INSTANCE_STATES = frozenset({"starting", "loading", "ready", "closing"})
REPLICA_STATES = frozenset({"fetching", "loading", "ready", "closing", "failed"})
TIERS = frozenset({"device", "host", "disk"})
KINDS = frozenset(PortKind)
_DATASET = PortKind.DATASET
_BY_FILES = frozenset({PortKind.MODEL, PortKind.ADAPTER})
FAILURES = frozenset(FailureKind)

ITEMS_MAX = 65_536
"""Attempts, ends, checkpoints, components of one message; chunks of one manifest."""
INSTANCES_MAX = 4096
LINES_MAX = 1000
FIGURES_MAX = 1024
PORTS_MAX = 256
ENTRIES_MAX = 4096
"""Engines, variants, libraries, labels, models of one worker; libraries of one end."""
SPOILED_MAX = 65_536

SECONDS_MAX = 1e9
MIB_MAX = 1 << 40
BYTES_MAX = 1 << 60
TOKENS_MAX = 10**12
UNITS_MAX = 10**15
HALVINGS_MAX = 16
PRICE_MAX = 10**13
"""$10,000 an hour, in nano-dollars."""
AGE_MAX_S = 20 * 365 * 86400.0
RETRY_AFTER_MAX_S = 30 * 86400.0
FIGURE_MAX = 1e18
TIME_MAX_S = 1e11
NAMES_BYTES_MAX = 320
"""Name, pool and incarnation of a worker together, so that attempt tokens stay short."""
REASON_CHARS = 200
"""Characters of a reason that may quote a message."""


_USAGE: checks.Limits = (
    ("units", UNITS_MAX),
    ("tokens_in", TOKENS_MAX),
    ("tokens_out", TOKENS_MAX),
    ("load_s", SECONDS_MAX),
    ("run_s", SECONDS_MAX),
    ("fetch_s", SECONDS_MAX),
    ("put_s", SECONDS_MAX),
    ("joules", FIGURE_MAX),
    ("peak_memory_mib", MIB_MAX),
    ("fetched_bytes", BYTES_MAX),
)
_FAILURE: checks.Limits = (("retry_after_s", RETRY_AFTER_MAX_S),)
_END: checks.Limits = (("started_s", TIME_MAX_S), ("ended_s", TIME_MAX_S))
_PROGRESS: checks.Limits = (("units", UNITS_MAX), ("done", FIGURE_MAX), ("total", FIGURE_MAX))
_CHECKPOINT: checks.Limits = (("done", FIGURE_MAX), ("size_bytes", BYTES_MAX))
_COMPONENT: checks.Limits = (("size_bytes", BYTES_MAX),)
_INSTANCE: checks.Limits = (
    ("capacity", 1 << 20),
    ("memory_mib", MIB_MAX),
    ("load_s", SECONDS_MAX),
    ("silent_s", SECONDS_MAX),
)
_REPLICA: checks.Limits = (
    ("calls", 1 << 20),
    ("units", UNITS_MAX),
    ("memory_mib", MIB_MAX),
    ("halvings", HALVINGS_MAX),
    ("code_failures", 1 << 20),
    ("call_s", TIME_MAX_S),
)
_ARTIFACT: checks.Limits = (("size_bytes", BYTES_MAX), ("rows", BYTES_MAX))
_CHUNK: checks.Limits = (("count", BYTES_MAX), ("bytes", BYTES_MAX))
_SHAPE: checks.Limits = (
    ("device_memory_mib", MIB_MAX),
    ("host_memory_mib", MIB_MAX),
    ("cpus", 1 << 20),
    ("price_nanousd_per_hour", PRICE_MAX),
    ("power_w", FIGURE_MAX),
    ("idle_w", FIGURE_MAX),
)
_REPORTS = (("ended", ITEMS_MAX), ("checkpoints", ITEMS_MAX))
_HELLO: checks.Limits = (("started_s", TIME_MAX_S), ("age_s", AGE_MAX_S))


def problems(message: WorkerMessage) -> list[MessageProblem]:
    """Returns every problem of a message; none where the machine may read it."""
    if isinstance(message, Hello):
        found = of_hello(message)
        reports = [("attempts", p.attempt_id, of_progress(p)) for p in message.attempts]
    else:
        found = of_sync(message)
        reports = [("progress", p.attempt_id, of_progress(p)) for p in message.progress]
        reports += [("logs", line.attempt_id, of_line(line)) for line in message.logs]
    reports += [("ended", e.attempt_id, of_end(e)) for e in message.ended]
    reports += [("checkpoints", c.attempt_id, of_checkpoint(c)) for c in message.checkpoints]
    items = [] if found is None else [found]
    for place, attempt_id, problem in reports:
        wrong = of_attempt_id(attempt_id) or problem
        if wrong is not None:
            items.append(wrong.within(place))
    return items


def of_attempt_id(attempt_id: str) -> MessageProblem | None:
    """Returns a problem if an id is not of the form ``scope/action/epoch-number``."""
    scope, action_id, number = (*attempt_id.split("/"), "", "", "")[:3]
    if attempt_id.count("/") == 2 and scope and is_digest(action_id):  # noqa: PLR2004 - three parts
        epoch, dash, count = number.partition("-")
        if dash and checks.is_number(epoch) and checks.is_number(count):
            return None
    return MessageProblem("attempt_id", f"{checks.short(attempt_id)} is not an attempt id")


def of_hello(hello: Hello) -> MessageProblem | None:
    """Returns the first problem of a worker's own values, without its attempts."""
    return (
        checks.number(hello, _HELLO)
        or checks.text("incarnation", hello.incarnation)
        or checks.text("code_tenant", hello.code_tenant, least=0)
        or of_shape(hello.shape)
        or _names(hello)
        or _attempts(hello.attempts)
        or checks.counts(hello, _REPORTS)
        or of_instances(hello.instances)
        or of_components(hello.components)
        or of_replicas(hello.replicas or ())
    )


def _names(hello: Hello) -> MessageProblem | None:
    names = f"{hello.shape.name}{hello.shape.pool}{hello.incarnation}"
    size = len(names.encode(errors="replace"))
    if size <= NAMES_BYTES_MAX:
        return None
    text = f"with name and pool it has {size} bytes, of at most {NAMES_BYTES_MAX}"
    return MessageProblem("incarnation", text)


def _attempts(attempts: Sequence[AttemptProgress]) -> MessageProblem | None:
    found = len(attempts)
    return checks.too_many("attempts", found, ITEMS_MAX) if found > ITEMS_MAX else None


def of_sync(sync: Sync) -> MessageProblem | None:
    """Returns the first problem of a worker's own values, without its attempts."""
    return (
        checks.counts(
            sync, (("progress", ITEMS_MAX), ("ended", ITEMS_MAX), ("checkpoints", ITEMS_MAX))
        )
        or checks.counts(sync, (("logs", LINES_MAX),))
        or of_instances(sync.instances or ())
        or of_components(sync.components or ())
        or of_replicas(sync.replicas or ())
        or of_metrics(sync.metrics)
    )


def of_shape(shape: WorkerShape) -> MessageProblem | None:
    """Returns the first problem of a worker's shape."""
    found = checks.number(shape, _SHAPE)
    if found is None and not 1 <= shape.devices <= ENTRIES_MAX:
        found = MessageProblem("devices", f"{shape.devices} is not between 1 and {ENTRIES_MAX}")
    found = (
        found
        or checks.text("name", shape.name)
        or checks.text("pool", shape.pool)
        or checks.text("device_class", shape.device_class)
        or checks.text("sandbox", shape.sandbox, least=0)
        or checks.text("sandbox_minimum", shape.sandbox_minimum, least=0)
        or checks.text("zone", shape.zone, least=0)
        or checks.text("node", shape.node, least=0)
        or checks.table("labels", shape.labels)
        or checks.table("libraries", shape.libraries)
        or _engines(shape.engines)
        or _variants(shape.variants)
    )
    models = shape.builtin_models or ()
    if found is None and len(models) > ENTRIES_MAX:
        found = checks.too_many("builtin_models", len(models), ENTRIES_MAX)
    for name in () if found else models:
        found = found or checks.text("builtin_models", name)
    return None if found is None else found.within("shape")


def of_instances(instances: tuple[EngineInstanceState, ...]) -> MessageProblem | None:
    """Returns the first problem of a worker's engine instances."""
    if len(instances) > INSTANCES_MAX:
        return checks.too_many("instances", len(instances), INSTANCES_MAX)
    for n, instance in enumerate(instances):
        found = (
            checks.digest("signature", instance.signature)
            or checks.one_of("state", instance.state, INSTANCE_STATES)
            or checks.number(instance, _INSTANCE)
            or _wake(instance)
            or checks.text("engine", instance.engine)
        )
        if found is not None:
            return found.within(f"lanes[{n}]")
    return None


def _wake(instance: EngineInstanceState) -> MessageProblem | None:
    wake_s = instance.wake_s
    if wake_s is msgspec.UNSET or 0 <= wake_s <= SECONDS_MAX:
        return None
    return checks.outside("wake_s", wake_s, SECONDS_MAX)


def of_components(components: tuple[Component, ...]) -> MessageProblem | None:
    """Returns the first problem of a worker's components."""
    if len(components) > ITEMS_MAX:
        return checks.too_many("components", len(components), ITEMS_MAX)
    for n, component in enumerate(components):
        found = checks.digest("digest", component.digest) or checks.one_of(
            "tier", component.tier, TIERS
        )
        if found is None and not 0 <= component.size_bytes <= BYTES_MAX:
            found = checks.outside("size_bytes", component.size_bytes, BYTES_MAX)
        if found is not None:
            return found.within(f"components[{n}]")
    return None


def of_replicas(replicas: tuple[ServingReplicaState, ...]) -> MessageProblem | None:
    """Returns the first problem of a worker's replicas of services."""
    if len(replicas) > INSTANCES_MAX:
        return checks.too_many("replicas", len(replicas), INSTANCES_MAX)
    for n, replica in enumerate(replicas):
        found = (
            checks.text("replica_id", replica.replica_id)
            or checks.one_of("state", replica.state, REPLICA_STATES)
            or checks.text("reason", replica.reason, least=0)
            or checks.digest("signature", replica.signature)
            or checks.number(replica, _REPLICA)
        )
        if found is not None:
            return found.within(f"replicas[{n}]")
    return None


def of_metrics(metrics: Mapping[str, float]) -> MessageProblem | None:
    """Returns the first problem of a worker's counters and gauges."""
    if len(metrics) > FIGURES_MAX:
        return checks.too_many("metrics", len(metrics), FIGURES_MAX)
    for name, value in metrics.items():
        if not 0.0 <= value <= FIGURE_MAX or len(name) > checks.NAME_CHARS:
            return checks.outside(f"metrics[{checks.short(name)}]", value, FIGURE_MAX)
    return None


def of_progress(progress: AttemptProgress) -> MessageProblem | None:
    """Returns the first problem of a report of progress."""
    return (
        checks.one_of("phase", progress.phase, PHASES)
        or checks.number(progress, _PROGRESS)
        or checks.text("unit", progress.unit, least=0)
    )


def of_line(line: LogLine) -> MessageProblem | None:
    """Returns the first problem of a line of a log."""
    if 0.0 <= line.time_s <= TIME_MAX_S:
        return None
    return checks.outside("time_s", line.time_s, TIME_MAX_S)


def of_checkpoint(checkpoint: Checkpoint) -> MessageProblem | None:
    """Returns the first problem of a report of a checkpoint."""
    found = checks.digest("digest", checkpoint.digest) or checks.number(checkpoint, _CHECKPOINT)
    if found is None and len(checkpoint.spoiled) > SPOILED_MAX:
        return checks.too_many("spoiled", len(checkpoint.spoiled), SPOILED_MAX)
    for digest in () if found else checkpoint.spoiled:
        found = found or checks.digest("spoiled", digest)
    return found


def of_usage(usage: Usage) -> MessageProblem | None:
    """Returns the first problem of an attempt's usage."""
    if (  # in one expression, since it is checked for each attempt; below it is named
        0 <= usage.units <= UNITS_MAX
        and 0 <= usage.tokens_in <= TOKENS_MAX
        and 0 <= usage.tokens_out <= TOKENS_MAX
        and 0 <= usage.load_s <= SECONDS_MAX
        and 0 <= usage.run_s <= SECONDS_MAX
        and 0 <= usage.fetch_s <= SECONDS_MAX
        and 0 <= usage.put_s <= SECONDS_MAX
        and 0 <= usage.joules <= FIGURE_MAX
        and 0 <= usage.peak_memory_mib <= MIB_MAX
        and 0 <= usage.fetched_bytes <= BYTES_MAX
    ):
        return None
    found = checks.number(usage, _USAGE)
    return None if found is None else found.within("usage")


def of_end(end: AttemptEnd) -> MessageProblem | None:
    """Returns the first problem of the report of an attempt's end, without its id.

    The machine checks the outputs against the step's contract, which only it knows.
    """
    failure = end.failure
    if failure is not None:
        if failure.kind not in FAILURES:
            return MessageProblem(
                "failure.kind", f"{checks.short(failure.kind)} is not a kind of failure"
            )
        if failure.reason not in ("", BY_IDENTITY):
            text = f"{checks.short(failure.reason)} is not a reason of a failure"
            return MessageProblem("failure.reason", text)
        if not 0.0 <= failure.retry_after_s <= RETRY_AFTER_MAX_S:
            return checks.outside("failure.retry_after_s", failure.retry_after_s, RETRY_AFTER_MAX_S)
    if f"/{end.action_id}/" not in end.attempt_id:
        return MessageProblem(
            "action_id", f"{checks.short(end.action_id)} is not the attempt's action"
        )
    return (
        of_usage(end.usage)
        or _times(end)
        or (checks.table("libraries", end.libraries) if end.libraries else None)
        or (_contents(end) if end.outputs or end.inline else None)
    )


def _times(end: AttemptEnd) -> MessageProblem | None:
    if 0 <= end.started_s <= TIME_MAX_S and 0 <= end.ended_s <= TIME_MAX_S:
        return None
    return checks.number(end, _END)


def _contents(end: AttemptEnd) -> MessageProblem | None:
    if len(end.outputs) > PORTS_MAX:
        return checks.too_many("outputs", len(end.outputs), PORTS_MAX)
    if len(end.inline) > ENTRIES_MAX:
        return checks.too_many("inline", len(end.inline), ENTRIES_MAX)
    for digest, data in end.inline.items():
        if digest_bytes(data) != digest:
            return MessageProblem(
                f"inline[{checks.short(digest)}]", "the content has another digest"
            )
    for port, artifact in end.outputs.items():
        found = checks.text("name", port) or of_artifact(artifact, end.inline)
        if found is not None:
            return found.within(f"outputs[{checks.short(port)}]")
    return None


def of_artifact(artifact: Artifact, inline: Mapping[Digest, bytes]) -> MessageProblem | None:
    """Returns the first problem of an output as its worker describes it.

    Args:
        artifact: the output.
        inline: contents of small blobs, whose digests were verified.
    """
    found = (
        checks.one_of("kind", artifact.kind, KINDS)
        or checks.digest("digest", artifact.digest)
        or checks.digest("blob", artifact.blob)
        or _sizes(artifact)
    )
    if found is not None:
        return found
    if artifact.kind == _DATASET:
        return None if artifact.manifest is None else _manifest(artifact, artifact.manifest)
    if artifact.manifest is not None:
        return MessageProblem("manifest", f"an artifact of kind {artifact.kind} has no manifest")
    if artifact.kind not in _BY_FILES:  # of a directory only a reader of its manifest can tell
        identity = content_identity(artifact.kind, artifact.blob)
        if identity != artifact.digest:
            return MessageProblem("digest", f"{artifact.kind} of this blob has another identity")
    if artifact.value is None:
        return None
    return _value(artifact, artifact.value, inline.get(artifact.blob))


def _sizes(artifact: Artifact) -> MessageProblem | None:
    if 0 <= artifact.size_bytes <= BYTES_MAX and 0 <= artifact.rows <= BYTES_MAX:
        return None
    return checks.number(artifact, _ARTIFACT)


def _manifest(artifact: Artifact, manifest: Manifest) -> MessageProblem | None:
    if manifest.format != FORMAT or artifact.value is not None:
        return MessageProblem(
            "manifest", f"it is not of format {FORMAT}, or the artifact also has values"
        )
    if len(manifest.chunks) > ITEMS_MAX:
        return checks.too_many("manifest.chunks", len(manifest.chunks), ITEMS_MAX)
    for n, chunk in enumerate(manifest.chunks):
        found = (
            checks.digest("rows", chunk.rows)
            or checks.digest("blob", chunk.blob)
            or checks.number(chunk, _CHUNK)
        )
        if found is not None:
            return found.within(f"manifest.chunks[{n}]")
    return _identity(artifact, manifest)


def _identity(artifact: Artifact, manifest: Manifest) -> MessageProblem | None:
    if manifest.row_count != artifact.rows:
        return MessageProblem("rows", f"{artifact.rows}, and {manifest.row_count} by the manifest")
    try:
        digest = dataset_digest(manifest)
    except IdentityError as e:
        return MessageProblem("manifest", e.reason[:REASON_CHARS])
    if digest != artifact.digest:
        return MessageProblem("digest", "the manifest has another identity")
    return None


def _value(
    artifact: Artifact, value: Mapping[str, Any], content: bytes | None
) -> MessageProblem | None:
    try:
        data = canonical_bytes(value)
    except IdentityError as e:
        return MessageProblem("value", e.reason[:REASON_CHARS])
    if data == content or digest_bytes(data) == artifact.blob:
        return None
    return MessageProblem("value", "it does not have the artifact's digest")


def _engines(engines: Mapping[str, EngineVersion]) -> MessageProblem | None:
    if len(engines) > ENTRIES_MAX:
        return checks.too_many("engines", len(engines), ENTRIES_MAX)
    for name, versions in engines.items():
        if not all(0 <= v <= SECONDS_MAX for v in versions):
            return MessageProblem(f"engines[{checks.short(name)}]", f"{versions} are not versions")
        found = checks.text("engines", name)
        if found is not None:
            return found
    return None


def _variants(variants: tuple[EngineVariant, ...]) -> MessageProblem | None:
    if len(variants) > ENTRIES_MAX:
        return checks.too_many("variants", len(variants), ENTRIES_MAX)
    for n, one in enumerate(variants):
        texts = (one.engine, one.implementation, *one.dtypes)
        found = next((p for t in texts if (p := checks.text("variants", t, least=0))), None)
        if found is not None or len(texts) > PORTS_MAX:
            return found or checks.too_many(f"variants[{n}].dtypes", len(one.dtypes), PORTS_MAX)
    return None
