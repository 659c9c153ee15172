"""Encoded messages and records in ``tests/golden/wire``, one file for each group.

``python -m tests.golden.wire --write`` records them again: only for an intended change of the
encoding, with a line in CHANGELOG.md. Without ``--write`` it names the differences.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tests.golden import frame_samples, protocol_samples, record_samples, serving_samples

from flowmesh_api.v1.audit import AuditReport, QuarantineEntry
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.lineage import Derivation
from flowmesh_api.v1.trace import RecordedRun
from flowmesh_api.v1.withheld import WithheldResult
from flowmesh_cli.connection.owner import OwnerRecord
from flowmesh_control.importer import frames as importer
from flowmesh_control.openai import records as openai_records
from flowmesh_control.records import run_records
from flowmesh_control.records.accounts import AccountsRecord
from flowmesh_control.records.ended_index import EndedRunEntry
from flowmesh_control.records.revocations import Revocation
from flowmesh_control.records.run_logs import RunLogRecord
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.records.store_format import StoreFormat
from flowmesh_control.runs.cancellations import Cancellation
from flowmesh_core.accounting.ledger_lines import decode_lines, encode_lines
from flowmesh_core.costmodel.state import decode_model, encode_model
from flowmesh_core.dataset.manifest import decode_manifest, encode_manifest
from flowmesh_core.protocol import serving
from flowmesh_core.protocol.messages import decode_control, decode_worker, encode
from flowmesh_core.protocol.results import decode_result, encode_result
from flowmesh_store.tree import decode_tree, encode_tree
from flowmesh_worker.engines.code import sidecar_frames as sidecar
from flowmesh_worker.engines.code.limits import SandboxResult
from flowmesh_worker.ipc import frames, hub_frames

FOLDER = Path(__file__).parent / "wire"


@dataclass(frozen=True)
class Sample:
    """A value, and how the code that sends or stores it encodes and decodes it.

    Attributes:
        group: the file that its bytes are in.
        name: of the sample within its group.
    """

    group: str
    name: str
    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


def samples() -> Iterator[Sample]:
    for name, message in protocol_samples.WORKER_MESSAGES.items():
        yield Sample("protocol", name, message, encode, decode_worker)
    for name, message in protocol_samples.CONTROL_MESSAGES.items():
        yield Sample("protocol", name, message, encode, decode_control)
    for name, line in record_samples.LEDGER.items():
        yield Sample("ledger", name, line, _encode_line, lambda data: decode_lines(data)[0])
    yield from _contents()
    yield from _records()
    yield from _frames()


def _encode_line(line: Any) -> bytes:
    return encode_lines([line])


def _contents() -> Iterator[Sample]:
    yield Sample(
        "contents", "action result", record_samples.ACTION_RESULT, encode_result, decode_result
    )
    yield Sample(
        "contents",
        "manifest",
        record_samples.DATASET_MANIFEST,
        encode_manifest,
        decode_manifest,
    )
    yield Sample(
        "contents",
        "tree manifest",
        record_samples.TREE.files,
        encode_tree,
        lambda data: decode_tree(data, protocol_samples.digest(0)),
    )


def _records() -> Iterator[Sample]:
    yield Sample("records", "cost model", record_samples.cost_model(), encode_model, decode_model)
    records: list[tuple[str, Any, Any]] = [
        ("spec", record_samples.ACCEPTED, run_records.AcceptedRecord),
        ("pins", record_samples.PINS, run_records.PinsRecord),
        ("final", record_samples.FINAL, run_records.FinalRecord),
        ("openai file", record_samples.OPENAI_FILE, openai_records.FileRecord),
        ("openai batch", record_samples.OPENAI_BATCH, openai_records.BatchRecord),
        ("openai batch index", record_samples.OPENAI_INDEX, openai_records.BatchIndex),
        ("cancelled", record_samples.CANCELLATION, Cancellation),
        ("revocation", record_samples.REVOCATION, Revocation),
        ("logs", record_samples.LOGS, RunLogRecord),
        ("audit", record_samples.AUDIT, AuditReport),
        ("accounts", record_samples.ACCOUNTS, AccountsRecord),
        ("ended", record_samples.ENDED, list[EndedRunEntry]),
        ("taken", ["weekly-1", "weekly-2"], list[str]),
        ("format", record_samples.STORE_FORMAT, StoreFormat),
        ("policy", record_samples.POLICY, CachePolicy | None),
        ("removed policy", None, CachePolicy | None),
        ("service", record_samples.SERVICE, ServiceRecord | None),
        ("quarantine", record_samples.QUARANTINED, QuarantineEntry),
        ("withheld", record_samples.WITHHELD, WithheldResult),
        ("lineage", [record_samples.DERIVATION], list[Derivation]),
        ("trace", record_samples.TRACE, RecordedRun),
        ("owner", record_samples.OWNER, OwnerRecord),
    ]
    for name, value, kind in records:
        yield Sample("records", name, value, msgspec.json.encode, msgspec.json.Decoder(kind).decode)


def _frames() -> Iterator[Sample]:
    """A frame of the engine host is a list of messages."""
    sides: list[tuple[str, Mapping[str, Any], Any]] = [
        ("host-frames", frame_samples.TO_HOST, list[frames.ToHost]),
        ("host-frames", frame_samples.FROM_HOST, list[frames.FromHost]),
        ("serving-frames", serving_samples.TO_ROUTER, list[serving.ToRouter]),
        ("serving-frames", serving_samples.FROM_ROUTER, list[serving.FromRouter]),
        ("serving-frames", serving_samples.TO_CALL_HOST, list[serving.ToCallHost]),
        ("serving-frames", serving_samples.FROM_CALL_HOST, list[serving.FromCallHost]),
        ("serving-frames", serving_samples.TO_PEER, list[serving.ToPeer]),
        ("serving-frames", serving_samples.FROM_PEER, list[serving.FromPeer]),
        ("hub-frames", serving_samples.TO_HUB, list[hub_frames.ToHub]),
        ("hub-frames", serving_samples.FROM_HUB, list[hub_frames.FromHub]),
    ]
    for group, messages, kind in sides:
        decode = msgspec.msgpack.Decoder(kind).decode
        for name, message in messages.items():
            yield Sample(group, name, [message], msgspec.msgpack.encode, decode)
    others: list[tuple[str, Mapping[str, Any], Any]] = [
        (
            "sidecar-frames",
            frame_samples.SIDECAR,
            frame_samples.SidecarFrame,
        ),
        (
            "sidecar-frames",
            {
                "task": frame_samples.CODE_TASK,
                "describe": frame_samples.DESCRIBE,
                "open resident": frame_samples.OPEN_RESIDENT,
                "attach resident": frame_samples.ATTACH_RESIDENT,
            },
            sidecar.Request,
        ),
        ("sidecar-frames", {"answer": frame_samples.CODE_ANSWER}, SandboxResult),
        ("importer-frames", frame_samples.IMPORTER, importer.Frame),
    ]
    for group, messages, kind in others:
        decode = msgspec.msgpack.Decoder(kind).decode
        for name, message in messages.items():
            yield Sample(group, name, message, msgspec.msgpack.encode, decode)


def stored() -> dict[str, dict[str, bytes]]:
    """Returns the recorded bytes by group and name."""
    return {
        path.stem: {
            name: base64.b64decode(text) for name, text in json.loads(path.read_text()).items()
        }
        for path in sorted(FOLDER.glob("*.json"))
    }


def encoded() -> dict[str, dict[str, bytes]]:
    """Returns the bytes of the current code by group and name."""
    found: dict[str, dict[str, bytes]] = {}
    for sample in samples():
        found.setdefault(sample.group, {})[sample.name] = sample.encode(sample.value)
    return found


def main(arguments: list[str]) -> int:
    now = encoded()
    if arguments == ["--write"]:
        FOLDER.mkdir(exist_ok=True)
        for path in FOLDER.glob("*.json"):
            path.unlink()
        for group, found in now.items():
            texts = {name: base64.b64encode(data).decode() for name, data in found.items()}
            (FOLDER / f"{group}.json").write_text(json.dumps(texts, indent=1) + "\n")
        return 0
    before = stored()
    differing = [
        f"{group}: {name}"
        for group in {**before, **now}
        for name in {**before.get(group, {}), **now.get(group, {})}
        if before.get(group, {}).get(name) != now.get(group, {}).get(name)
    ]
    print("\n".join(differing) or "all bytes are as recorded")  # noqa: T201
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
