"""Stored and received data may be damaged: every reader reports that with its own error."""

import ast
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType

from flowmesh_cli.connection import owner
from flowmesh_control.cache import admin
from flowmesh_control.importer.frames import (
    BrokenFrameError,
    DecodingRefused,
    encoded,
    read_frame,
)
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cost_model_snapshot import load_model
from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.keys import audit_key, cancelled_key, learned_key, segment_key
from flowmesh_control.records.ledger import read_segments
from flowmesh_control.records.lineage_keys import RUNS
from flowmesh_control.records.lineage_reader import LineageReader
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_records import decode_record, spec_decoder
from flowmesh_control.runs.cancellations import find_cancelled
from flowmesh_control.runs.recovery import RecoveredState
from flowmesh_control.workers.message_reading import read_message
from flowmesh_core.accounting.ledger_lines import StepLine, decode_lines, encode_lines
from flowmesh_core.costmodel import CostModel, decode_model, encode_model
from flowmesh_core.dataset import Schema, decode_manifest
from flowmesh_core.errors import AttemptError, DamagedRecordError, IdentityError, StoreError
from flowmesh_core.machine.events import Submitted
from flowmesh_core.protocol.messages import (
    Refused,
    Sync,
    decode_control,
    decode_worker,
    encode,
)
from flowmesh_core.protocol.results import ActionResult, Artifact, decode_result, encode_result
from flowmesh_store.action_cache import decoded
from flowmesh_store.ports import Record, RecordStore
from flowmesh_store.store import open_store
from flowmesh_store.tree import decode_tree
from flowmesh_worker.engines.code import locked_calls
from flowmesh_worker.engines.code.answers import AnswerBytes
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest

ROOT = Path(__file__).parent.parent
PACKAGES = ("core", "store", "control", "operator", "worker", "cli", "sim")
HELPER = ROOT / "core" / "flowmesh_core" / "decoding.py"

NAME = b"name of something"
"""Stands where the tests put bytes that are not UTF-8; a field of every type below."""


def spoiled(data: bytes) -> bytes:
    """Returns the bytes with one flipped in the name within them."""
    assert NAME in data
    return data.replace(NAME, b"\xff" + NAME[1:])


RESULT = spoiled(b'{"action_id": "name of something"}')
LEDGER = spoiled(encode_lines([StepLine(1.0, NAME.decode(), "COMPLETED")]))
MODEL = spoiled(b'{"version": 1, "learned": [], "memory": [[["name of something"], 1]]}')
SYNC = spoiled(encode(Sync(seq=1, metrics={NAME.decode(): 1.0})))
REFUSED = spoiled(encode(Refused(NAME.decode(), final=True)))
MANIFEST = spoiled(b'{"schema": {"columns": [{"name": "name of something"}]}}')
TREE = spoiled(b'{"kind": "tree", "files": [{"path": "name of something"}]}')
SPEC = spoiled(b'{"uid": "name of something"}')
FRAME = spoiled(encoded(DecodingRefused(NAME.decode(), "", "", limit=False)))
CANCELLED = spoiled(b'{"time_s": 1.0, "reason": "name of something"}')
LINEAGE = spoiled(b'[{"uid": "name of something"}]')
FINAL = spoiled(b'{"epoch": 1, "status": {"uid": "name of something"}}')
OWNER = spoiled(b'{"url": "name of something"}')

Reading = Callable[[], object]


def _answer_of_users_code() -> object:
    task = SandboxRequest(code="", function="f", inputs={}, args={}, cpu_s=1, memory_mib=256)
    with AnswerBytes(256, Path()) as answer:
        asyncio.run(answer.take(b"\x81\xa5error\xa1\xff"))
        return locked_calls._read(answer, ProcessEnd(0), task)


async def _frame() -> object:
    reader = asyncio.StreamReader()
    reader.feed_data(FRAME)
    return await read_frame(reader)


@pytest.mark.parametrize(
    ("reading", "error"),
    [
        (lambda: decode_result(RESULT), msgspec.DecodeError),
        (lambda: decode_lines(LEDGER), msgspec.DecodeError),
        (lambda: decode_model(MODEL), msgspec.DecodeError),
        (lambda: decode_worker(SYNC), msgspec.DecodeError),
        (lambda: decode_control(REFUSED), msgspec.DecodeError),
        (lambda: decode_manifest(MANIFEST), IdentityError),
        (lambda: decode_tree(TREE, "a" * 64), StoreError),  # type: ignore[arg-type]
        (lambda: decode_record(spec_decoder, "k", Record(SPEC, "")), DamagedRecordError),
        (_answer_of_users_code, AttemptError),
        (lambda: asyncio.run(_frame()), BrokenFrameError),
    ],
    ids=[
        "result", "ledger", "cost model", "worker", "control", "manifest", "tree", "record",
        "answer of the user's code", "frame of the importer",
    ],
)  # fmt: skip
def test_a_string_that_is_not_utf_8_is_malformed_like_anything_else(
    reading: Reading, error: type[Exception]
) -> None:
    with pytest.raises(error):
        reading()


async def _cancellation(records: RecordStore) -> object:
    await records.write(cancelled_key("u"), CANCELLED)
    run = Submitted("u", None, 0.0, None, {})  # type: ignore[arg-type]
    return await find_cancelled(
        records, RecoveredState(DeletedRuns(records), submitted=[run]), _nothing_withdrawn
    )


async def _nothing_withdrawn(_: object) -> dict[str, str]:
    return {}


async def _model(records: RecordStore) -> object:
    await records.write(learned_key(1), MODEL)
    return encode_model(await load_model(records))


async def _lineage(records: RecordStore) -> object:
    key = f"{RUNS}u/{'a' * 64}"
    await records.write(key, LINEAGE)
    return await LineageReader(records)._read(key)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [(_cancellation, {"u": "cancelled"}), (_model, encode_model(CostModel())), (_lineage, [])],
)
async def test_an_expendable_record_is_skipped_if_it_is_not_utf_8(
    reading: Callable[[RecordStore], Awaitable[object]], expected: object
) -> None:
    assert await reading(open_store("memory:").records) == expected


async def test_a_message_that_is_not_utf_8_has_a_reason_instead_of_content() -> None:
    message = WSMessage(WSMsgType.BINARY, SYNC, None)
    assert "not UTF-8" in str(await read_message(message))


def test_the_end_of_a_run_that_is_not_utf_8_is_unknown() -> None:
    assert admin._final_or_none(FINAL) is None


def test_an_owner_of_a_state_folder_that_is_not_utf_8_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "owner").write_bytes(OWNER)
    assert owner._decode(tmp_path / "owner") is None


async def test_the_report_of_an_audit_that_is_not_utf_8_is_named() -> None:
    records = open_store("memory:").records
    await records.write(audit_key("u"), SPEC)
    with pytest.raises(DamagedRecordError, match=audit_key("u")):
        await AuditRecords(records, Quarantine(records), lambda: 0.0).report("u")


@pytest.mark.parametrize("opening", [b'{"x": 0}', b"[1]", b'{"1": "\xff"}', b'{"1": "one"}'])
async def test_a_damaged_first_line_of_a_ledger_is_named(opening: bytes) -> None:
    records = open_store("memory:").records
    await records.write(segment_key("u", 1, 0), opening)
    with pytest.raises(DamagedRecordError, match=segment_key("u", 1, 0)):
        await read_segments(records, "u")


def test_a_stored_result_with_any_flipped_byte_is_read_or_a_miss() -> None:
    digest = "a" * 64
    artifact = Artifact("dataset", digest, digest, 1)  # type: ignore[arg-type]
    whole = encode_result(
        ActionResult(digest, 1, "test.noop", 1, 1, {}, {"rows": artifact})  # type: ignore[arg-type]
    )
    for at in range(len(whole)):
        for flipped in (whole[at] ^ 0x80, whole[at] ^ 1, 0xFF):
            decoded(Record(whole[:at] + bytes([flipped]) + whole[at + 1 :], "etag"))


def test_a_stored_value_that_its_type_refuses_is_a_miss() -> None:
    columns = [{"name": "b", "type": "int"}, {"name": "a", "type": "int"}]
    with pytest.raises(IdentityError):
        msgspec.json.decode(msgspec.json.encode({"columns": columns}), type=Schema)
    manifest = {"schema": {"columns": columns}}
    artifact = {"kind": "dataset", "digest": "d", "blob": "b", "size_bytes": 1}
    versions = {"generation": 1, "contract": 1, "implementation": 1}
    outputs = {"rows": {**artifact, "manifest": manifest}}
    named = {"action_id": "a" * 64, "engine": "test.noop", "inputs": {}}
    result = {**named, **versions, "outputs": outputs}
    assert decoded(Record(msgspec.json.encode(result), "etag")) is None


def test_only_the_helper_calls_a_msgspec_decoder() -> None:
    trees = {path: ast.parse(path.read_text()) for path in _modules()}
    decoders = {name for tree in trees.values() for name in _decoders(tree)}
    assert {"spec_decoder", "frames"} <= decoders  # the search finds what it is to find
    found = [
        f"{path.relative_to(ROOT)}:{line}: use flowmesh_core.decoding.decode"
        for path, tree in trees.items()
        for line in _direct_calls(tree, decoders)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "msgspec.json.decode(data, type=T)",
        "msgspec.msgpack.decode(data)",
        "msgspec.json.Decoder(T).decode(data)",
        "_records.decode(data)",
        "self._records.decode(data)",
        "decoder.decode(data)",
    ],
)
def test_the_search_finds_a_direct_call(source: str) -> None:
    assert list(_direct_calls(ast.parse(source), {"_records"})) == [1]
    assert list(_direct_calls(ast.parse("decode(_records, data); b'a'.decode()"), set())) == []


def _modules() -> list[Path]:
    roots = (ROOT / package / f"flowmesh_{package}" for package in PACKAGES)
    return [path for root in roots for path in sorted(root.rglob("*.py")) if path != HELPER]


def _decoders(tree: ast.AST) -> Iterator[str]:
    """Names and attributes that decoders of msgspec are assigned to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _makes_decoder(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name for name in map(_name, targets) if name)


def _direct_calls(tree: ast.AST, decoders: set[str]) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner_, name = node.func.value, _name(node.func.value)
            of_decoder = name in decoders or name.endswith("decoder") or _makes_decoder(owner_)
            of_module = ast.unparse(owner_) in ("msgspec.json", "msgspec.msgpack")
            if node.func.attr == "decode" and (of_decoder or of_module):
                yield node.lineno


def _makes_decoder(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "msgspec.json.Decoder",
        "msgspec.msgpack.Decoder",
    )


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
