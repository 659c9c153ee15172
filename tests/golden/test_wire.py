"""Encoded messages and records do not change, even if names in Python do."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.golden.wire import Sample, encoded, main, samples, stored

from flowmesh_api.v1 import audit, fabric, lineage, runs, trace
from flowmesh_cli.connection import owner
from flowmesh_control.importer import frames as importer_frames
from flowmesh_control.records import accounts, ended_index, run_logs, run_records
from flowmesh_control.runs import cancellations
from flowmesh_core.accounting import ledger_lines
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.dataset import manifest, schema
from flowmesh_core.graph import plan
from flowmesh_core.protocol import messages, results
from flowmesh_core.protocol import serving as serving_frames
from flowmesh_store import tree
from flowmesh_worker.engines.code import limits, sidecar_frames
from flowmesh_worker.ipc import frames as host_frames
from flowmesh_worker.ipc import hub_frames

MODULES = (
    accounts,
    cancellations,
    ended_index,
    host_frames,
    hub_frames,
    importer_frames,
    run_logs,
    ledger_lines,
    limits,
    manifest,
    messages,
    owner,
    plan,
    results,
    run_records,
    schema,
    serving_frames,
    sidecar_frames,
    tree,
)
OF_THE_API = (
    audit.AuditReport,
    audit.QuarantineEntry,
    fabric.CachePolicy,
    lineage.Derivation,
    runs.RunStatus,
    trace.RecordedRun,
)
"""Answers of the API that are stored, too."""
WITHOUT_A_SAMPLE = {"SpecRecord", "TreeManifest"}
"""A base of `AcceptedRecord`; and what `encode_tree` makes of a list of files."""
SAMPLES = list(samples())


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_a_value_encodes_to_the_recorded_bytes(sample: Sample) -> None:
    assert sample.encode(sample.value) == stored()[sample.group][sample.name]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_recorded_bytes_decode_and_encode_to_themselves(sample: Sample) -> None:
    before = stored()[sample.group][sample.name]
    value = sample.decode(before)
    if not isinstance(value, CostModel):  # it has no equality
        assert value == sample.value
    assert sample.encode(value) == before


def test_every_recorded_message_has_a_sample() -> None:
    now = encoded()
    assert {g: list(found) for g, found in stored().items()} == {
        g: list(found) for g, found in sorted(now.items())
    }


def test_the_recorder_finds_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "all bytes are as recorded\n"


def test_every_field_of_every_structure_has_a_non_default_value_in_some_sample() -> None:
    """A field that is left out, being its default, could be renamed unseen."""
    filled: defaultdict[type, set[str]] = defaultdict(set)
    for sample in SAMPLES:
        for one in _structures(sample.value):
            filled[type(one)] |= {f for f in _fields(type(one)) if _is_filled(one, f)}
    empty = {
        f"{kind.__name__}.{field}"
        for kind, fields in filled.items()
        for field in _fields(kind)
        if field not in fields
    }
    assert empty == set()


def test_every_structure_of_the_modules_that_send_or_store_has_a_sample() -> None:
    there = {type(one).__name__ for sample in SAMPLES for one in _structures(sample.value)}
    defined = {
        kind.__name__
        for module in MODULES
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert defined - there == WITHOUT_A_SAMPLE


@pytest.mark.parametrize("kind", OF_THE_API, ids=lambda kind: kind.__name__)
def test_every_structure_in_a_stored_answer_has_a_sample(kind: type) -> None:
    there = {type(one) for sample in SAMPLES for one in _structures(sample.value)}
    within = set(_kinds_in(inspect.type_info(kind)))
    assert kind in within
    assert within <= there


def _structures(value: Any) -> Iterator[Any]:
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        yield value
        for field in _fields(type(value)):
            yield from _structures(getattr(value, field))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _structures(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _structures(one)


def _kinds_in(info: Any) -> Iterator[type]:
    """The structures in a type."""
    match info:
        case inspect.StructType(cls=kind, fields=fields):
            yield kind
            within = [field.type for field in fields]
        case inspect.UnionType(types=types):
            within = list(types)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            within = [item]
        case inspect.TupleType(item_types=items):
            within = list(items)
        case inspect.DictType(value_type=value):
            within = [value]
        case _:
            within = []
    for one in within:
        yield from _kinds_in(one)


def _fields(kind: Any) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind))


def _is_filled(one: Any, field: str) -> bool:
    """Whether a value is not empty, and not a default that the encoded form leaves out."""
    value = getattr(one, field)
    if value is None or value in ("", (), [], {}):
        return False
    if isinstance(one, msgspec.Struct) and one.__struct_config__.omit_defaults:
        defaults = {f.name: f.default for f in msgspec.structs.fields(type(one))}
        return bool(value != defaults[field])
    return True
