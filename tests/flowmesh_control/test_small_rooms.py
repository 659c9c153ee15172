"""The smaller rooms: the master key, policies, plugins, logs, changes, content."""

import asyncio
import contextlib
import gc
import tarfile
from importlib.metadata import EntryPoint
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.auth.master_key import load_master_key
from flowmesh_control.loop.gc_tuning import YOUNG, tune_gc
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.downloads import download_of
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError, InvalidReferenceError, SpecError
from flowmesh_core.protocol.messages import AttemptEnd, LogLine, Sync
from flowmesh_core.sharing import issue, plan_scopes
from flowmesh_core.units import Digest
from flowmesh_store.store import Store

KEY = b"k" * 32
A = plan_scopes([], "team-a")
B = plan_scopes([], "team-b")


def test_the_master_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    key = load_master_key(tmp_path / "state")
    assert load_master_key(tmp_path / "state") == key
    assert len(key) == 32
    path = tmp_path / "state" / "master.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(FlowMeshError, match="chmod 600"):
        load_master_key(tmp_path / "state")


def test_a_damaged_master_key_is_refused_rather_than_replaced(tmp_path: Path) -> None:
    load_master_key(tmp_path)
    (tmp_path / "master.key").write_bytes(b"short")
    with pytest.raises(FlowMeshError, match="5 bytes"):
        load_master_key(tmp_path)


async def test_policies_survive_a_restart_and_their_removal_does_too(store: Store) -> None:
    policies = CachePolicyStore(store.records)
    group = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a", "team-b"))
    await policies.put(group)
    await policies.put(CachePolicy("h", Sharing.ALL, namespaces=("team-c",)))
    again = CachePolicyStore(store.records)
    await again.load()
    assert again.scopes("team-a").publish == "group-x"
    await again.replace_all([group])
    last = CachePolicyStore(store.records)
    await last.load()
    assert [p.name for p in last.all()] == ["g"]
    assert last.scopes("team-c").publish == "ns-team-c"


async def test_a_malformed_policy_is_refused_before_it_is_written(store: Store) -> None:
    policies = CachePolicyStore(store.records)
    with pytest.raises(SpecError, match="needs a group"):
        await policies.put(CachePolicy("g", Sharing.GROUP, namespaces=("team-a",)))
    assert [k async for k in store.records.keys("policies/")] == []


CONTRACT = EngineContract(
    "my.engine", 1, 1, inputs=(), outputs=(Port("metrics", PortKind.METRICS),)
)


def contracts() -> list[EngineContract]:
    return [CONTRACT]


def broken() -> list[EngineContract]:
    raise RuntimeError("no licence")


def nonsense() -> list[str]:
    return ["my.engine"]


def point(function: str) -> EntryPoint:
    return EntryPoint("mine", f"{__name__}:{function}", "flowmesh.contracts")


def test_plugins_add_their_contracts_to_the_built_in_ones() -> None:
    catalog = load_catalog([point("contracts")])
    assert catalog.newest("my.engine") == CONTRACT
    assert catalog.newest("test.noop") is not None


@pytest.mark.parametrize(
    ("function", "message"), [("broken", "no licence"), ("nonsense", "not an EngineContract")]
)
def test_a_plugin_that_fails_is_named(function: str, message: str) -> None:
    with pytest.raises(FlowMeshError, match=message) as caught:
        load_catalog([point(function)])
    assert "plugin mine" in caught.value.where


def test_logs_are_kept_by_action_and_forgotten_with_the_oldest_attempt() -> None:
    logs = LogBuffer(attempts=2, lines=2)
    for n in range(3):
        lines = tuple(LogLine("s/a/1-1", float(i), f"line {i}") for i in range(3))
        logs.add(Sync(1, logs=lines))
        logs.add(Sync(1, ended=(AttemptEnd(f"s/b/1-{n}", Digest("b"), log="one\ntwo", ended_s=9),)))
    assert [x.text for x in logs.of_actions(["s/b"])] == ["one", "two"]
    assert [x.text for x in logs.of_actions(["s/a"])] == ["line 1", "line 2"]
    logs.add(Sync(1, logs=(LogLine("s/a/1-1", 1.0, "x"), LogLine("s/a/1-1", 2.0, "y"))))
    logs.add(Sync(1, logs=(LogLine("s/a/1-1", 3.0, "z"),)))
    assert [x.text for x in logs.of_actions(["s/a"])] == ["y", "z"]


async def test_a_watcher_wakes_at_once_and_then_when_its_run_changes() -> None:
    changes, woken = RunChangeFeed(), list[int]()

    async def watch() -> None:
        async with contextlib.aclosing(changes.of("u1")) as watching:
            async for _ in watching:
                woken.append(1)
                if len(woken) == 2:
                    return

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    assert len(woken) == 1
    changes.changed("u2")
    changes.changed("u1")
    await asyncio.wait_for(task, 60)
    assert not changes._watchers


async def test_rows_come_back_by_their_reference_in_their_own_namespace_only(store: Store) -> None:
    content = UploadStore(store.blobs, KEY)
    stored = await content.put_file("x.jsonl", b'{"a": 1}\n{"a": 2}\n', A.private)
    loaded = await content.load("dataset", stored.reference, A)
    assert msgspec.structs.replace(loaded, manifest=None) == stored.artifact
    assert loaded.rows == 2
    with pytest.raises(InvalidReferenceError, match="not valid for this namespace"):
        await content.load("dataset", stored.reference, B)
    with pytest.raises(InvalidReferenceError, match="of kind dataset; expected one of kind model"):
        await content.load("model", stored.reference, A)
    gone = issue(KEY, A.private, "dataset", Digest("0" * 64))
    with pytest.raises(InvalidReferenceError, match="no longer"):
        await content.load("dataset", gone, A)


async def test_a_directory_comes_back_as_the_tar_it_was(store: Store, tmp_path: Path) -> None:
    content = UploadStore(store.blobs, KEY)
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "sub" / "w.bin").write_bytes(b"w" * 1000)
    stored = await content.put_directory("model", model, A.private)
    loaded = await content.load("model", stored.reference, A)
    download = download_of(store.blobs, [loaded])
    data = b"".join([piece async for piece in download.pieces])
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        names = tar.getnames()
        member = tar.extractfile("sub/w.bin")
        assert member is not None
        assert member.read() == b"w" * 1000
    assert sorted(names) == ["config.json", "sub/w.bin"]
    assert loaded.size_bytes == 1002


def test_the_garbage_collector_is_told_once_to_look_seldom_and_goes_on() -> None:
    before = gc.get_threshold()
    try:
        tune_gc()
        tune_gc()
        assert gc.get_threshold()[0] == YOUNG
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
