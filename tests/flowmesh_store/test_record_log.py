"""The log of action results: a dictionary, whatever was torn, spoiled, copied or removed."""

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_cli.calling import until

from flowmesh_store.filesystem import record_frames
from flowmesh_store.filesystem import record_log as log_module
from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot

HERE = Path(__file__).parent
KILLS = 20


def opened(directory: Path) -> RecordLog:
    return RecordLog(StoreRoot(directory), "actions")


def put(log: RecordLog, name: str, data: bytes | None = None) -> str:
    etag = log.write(f"actions/{name}", data or name.encode(), if_match=None, durable=False)
    assert etag is not None
    return etag


def names(log: RecordLog) -> list[str]:
    found = [stored.key.removeprefix("actions/") for stored in log.aged("actions/")]
    for name in found:
        record = log.read(f"actions/{name}")
        assert record is not None
    return found


def file_of(directory: Path) -> Path:
    return directory / "actions" / "log"


class Model:
    """What a log should do: a dictionary."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, str]] = {}

    def apply(self, log: RecordLog, operation: str, key: str, data: bytes) -> None:
        if operation == "compact":
            log.compact()
        elif operation == "delete":
            there = self.held.pop(key, None) is not None
            assert log.delete(key, older_than_s=-1.0) == there
        elif operation == "stale":
            assert log.write(key, data, if_match="0" * 54, durable=False) is None
        else:
            before = self.held.get(key)
            if_match = None if operation == "write" or before is None else before[1]
            etag = log.write(key, data, if_match=if_match, durable=operation == "replace")
            assert (etag is None) == (operation == "write" and before is not None)
            if etag is not None:
                assert before is None or etag != before[1]
                self.held[key] = data, etag

    def is_in(self, log: RecordLog) -> None:
        assert [stored.key for stored in log.aged("actions/")] == sorted(self.held)
        for key, (data, etag) in self.held.items():
            record = log.read(key)
            assert record is not None
            assert (record.data, record.etag) == (data, etag)


OPERATION = st.tuples(
    st.sampled_from(["write", "replace", "stale", "delete", "compact", "reopen"]),
    st.integers(0, 2),
    st.sampled_from(["actions/a", "actions/b", "actions/c"]),
    st.binary(max_size=40),
)


@settings(deadline=None)
@given(operations=st.lists(OPERATION, max_size=40))
def test_three_processes_that_share_the_log_see_one_dictionary(
    operations: list[tuple[str, int, str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("log")
    logs = [opened(directory) for _ in range(3)]
    model = Model()
    for operation, who, key, data in operations:
        if operation == "reopen":
            logs[who] = opened(directory)
        else:
            model.apply(logs[who], operation, key, data)
        for log in logs:
            model.is_in(log)


def test_a_last_record_truncated_anywhere_loses_no_earlier_one_and_can_be_rewritten(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    put(log, "a")
    whole = file_of(tmp_path).stat().st_size
    put(log, "b", (record_frames.ALIVE + b"x") * 20)  # as if other records began in it
    content = file_of(tmp_path).read_bytes()
    for size in range(whole, len(content)):
        file_of(tmp_path).write_bytes(content[:size])
        reader, writer = opened(tmp_path), opened(tmp_path)
        assert names(reader) == ["a"]
        put(writer, "c")
        put(writer, "b")
        for one in (reader, writer, opened(tmp_path)):
            assert names(one) == ["a", "b", "c"]


def test_a_replaced_or_deleted_record_does_not_return_when_the_newest_one_is_damaged(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    first = put(log, "a", b"old")
    assert log.write("actions/a", b"newest", if_match=first, durable=False)
    put(log, "b", b"gone")
    assert log.delete("actions/b", older_than_s=-1.0)
    put(log, "c")
    content = bytearray(file_of(tmp_path).read_bytes())
    content[content.index(b"newest")] ^= 1
    content[content.rindex(b"actions/b")] ^= 1
    file_of(tmp_path).write_bytes(bytes(content))
    for one in (log, opened(tmp_path)):
        assert names(one) == ["c"]
        assert one.write("actions/a", b"third", if_match=first, durable=False) is None
    assert put(log, "a", b"again")


def test_two_writes_never_have_the_same_etag(tmp_path: Path) -> None:
    log = RecordLog(StoreRoot(tmp_path), "actions", clock=lambda: 7.0)
    first = put(log, "a", b"A")
    second = log.write("actions/a", b"B", if_match=first, durable=False)
    third = log.write("actions/a", b"A", if_match=second, durable=False)
    assert log.delete("actions/a", older_than_s=0.0)
    assert len({first, second, third, put(log, "a", b"A")}) == 4


def test_a_damaged_byte_loses_only_its_own_record(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for name in "abc":
        put(log, name)
    content = file_of(tmp_path).read_bytes()
    length = len(content) // 3
    for at in range(length, 2 * length):
        spoiled = bytearray(content)
        spoiled[at] ^= 0x41
        file_of(tmp_path).write_bytes(bytes(spoiled))
        assert names(opened(tmp_path)) == ["a", "c"]
        assert log.read("actions/b") is None  # though it knows where it was
        assert put(opened(tmp_path), "b")
        assert names(opened(tmp_path)) == ["a", "b", "c"]
        file_of(tmp_path).unlink()
        file_of(tmp_path).write_bytes(content)
        assert names(log) == ["a", "b", "c"]


def test_garbage_between_records_is_skipped_whatever_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_CHUNK_BYTES", 64)
    log = opened(tmp_path)
    put(log, "a", b"x" * 1000)  # longer than what is read at once
    for length in range(60, 70):  # so that a beginning lies across two pieces
        with file_of(tmp_path).open("ab") as file:
            file.write(b"?" * length)
        put(opened(tmp_path), f"after-{length}")
    assert names(opened(tmp_path)) == ["a", *(f"after-{n}" for n in range(60, 70))]


def test_a_removed_file_counts_as_empty(tmp_path: Path) -> None:
    log = opened(tmp_path)
    put(log, "a")
    file_of(tmp_path).unlink()
    assert names(log) == []
    put(log, "b")
    assert names(opened(tmp_path)) == ["b"]


def test_a_hard_linked_backup_is_not_mistaken_for_the_log(tmp_path: Path) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    put(log, "a")
    assert names(other) == ["a"]
    os.link(file_of(tmp_path), tmp_path / "backup")
    other.compact()
    put(log, "b")
    put(other, "c")
    for one in (log, other, opened(tmp_path)):
        assert names(one) == ["a", "b", "c"]


def test_a_record_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_frames, "LARGEST_BYTES", 1000)
    log = opened(tmp_path)
    put(log, "a", b"x" * 1000)
    with pytest.raises(OSError, match="File too large"):
        put(log, "b", b"x" * 1001)
    assert names(log) == ["a"]


def test_deletions_shrink_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "COMPACT_FROM_BYTES", 1000)
    log, other = opened(tmp_path), opened(tmp_path)
    for number in range(50):
        put(log, f"n{number:02}", b"x" * 100)
    full = file_of(tmp_path).stat().st_size
    for number in range(49):
        assert log.delete(f"actions/n{number:02}", older_than_s=0.0)
    assert file_of(tmp_path).stat().st_size < full / 5
    assert names(other) == ["n49"]
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_changes_that_others_make_during_a_compaction_are_preserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    etags = {name: put(log, name) for name in "abc"}
    real = log_module._copy_frames
    calls = []

    def copied(*arguments: Any) -> Any:
        done = real(*arguments)
        if not calls:
            assert other.delete("actions/a", older_than_s=0.0)
            assert other.write("actions/b", b"new", if_match=etags["b"], durable=False)
            put(other, "d")
        calls.append(1)
        return done

    monkeypatch.setattr(log_module, "_copy_frames", copied)
    log.compact()
    assert len(calls) == 2
    for one in (log, other, opened(tmp_path)):
        assert names(one) == ["b", "c", "d"]
        record = one.read("actions/b")
        assert record is not None
        assert record.data == b"new"


def test_of_two_concurrent_compactions_the_second_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    put(log, "a")
    real = log_module._copy_frames
    calls = []

    def copied(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            other.compact()
            put(other, "b")
        return real(*arguments)

    monkeypatch.setattr(log_module, "_copy_frames", copied)
    log.compact()
    for one in (log, other, opened(tmp_path)):
        assert names(one) == ["a", "b"]
    assert list((tmp_path / ".tmp").iterdir()) == []


def no_space(*_: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_deletions_take_effect_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "COMPACT_FROM_BYTES", 0)
    log, other = opened(tmp_path), opened(tmp_path)
    for name in "abcd":
        put(log, name)
    assert names(other) == ["a", "b", "c", "d"]
    monkeypatch.setattr(log_module._File, "append", no_space)
    for name in "abc":
        assert log.delete(f"actions/{name}", older_than_s=0.0)
    monkeypatch.undo()
    for one in (log, other, opened(tmp_path)):
        assert names(one) == ["d"]
        assert one.read("actions/a") is None
    assert list((tmp_path / ".tmp").iterdir()) == []
    other.compact()
    assert names(log) == names(opened(tmp_path)) == ["d"]
    put(log, "a")


def test_a_compaction_that_does_not_fit_is_not_retried_at_every_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "COMPACT_FROM_BYTES", 2000)
    log = opened(tmp_path)
    for number in range(50):
        put(log, f"n{number:02}", b"x" * 100)
    log._compact_from_bytes = 2000
    tries: list[object] = []

    def full(*arguments: object) -> Any:
        tries.append(arguments)
        no_space()

    monkeypatch.setattr(log_module, "_copy_frames", full)
    for number in range(49):
        assert log.delete(f"actions/n{number:02}", older_than_s=0.0)
    assert 1 <= len(tries) <= 5
    assert names(log) == ["n49"]


def test_an_unreadable_sector_loses_only_its_own_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    for number in range(200):
        put(log, f"n{number:03}", b"x" * 100)
    real, bad = os.pread, 5000

    def unreadable(descriptor: int, size: int, offset: int) -> bytes:
        if offset <= bad < offset + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, size, offset)

    monkeypatch.setattr(log_module.os, "pread", unreadable)
    one_page = 4096 // 140 + 2
    fresh = opened(tmp_path)
    assert len(names(fresh)) >= 200 - one_page
    fresh.compact()
    monkeypatch.undo()
    left = names(opened(tmp_path))
    assert 200 - one_page <= len(left) < 200
    lost = next(f"n{n:03}" for n in range(200) if f"n{n:03}" not in left)
    put(log, lost)


def test_a_compacted_file_keeps_the_owner_of_the_old_one(tmp_path: Path) -> None:
    log = opened(tmp_path)
    put(log, "a")
    file_of(tmp_path).chmod(0o640)
    if os.getuid() == 0:
        os.chown(file_of(tmp_path), 65534, 65534)
    before = file_of(tmp_path).stat()
    log.compact()
    after = file_of(tmp_path).stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_a_caller_that_may_not_wait_does_not_write_while_another_has_the_lock(
    tmp_path: Path,
) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    put(log, "a")
    put(other, "b")
    other._begin_write(wait=True)
    try:
        with pytest.raises(BlockingIOError):
            log.write("actions/c", b"c", if_match=None, durable=False, wait=False)
        found = log.read("actions/b", wait=False)  # reading needs no turn
        assert found is not None
        with file_of(tmp_path).open("ab") as file:
            file.write(b"begun")  # what another is about to write
        with pytest.raises(BlockingIOError):
            log.read("actions/a", wait=False)
    finally:
        other._end_write()
    assert names(log) == ["a", "b"]


def test_a_record_that_is_replaced_while_it_is_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    etags = [put(log, "a", b"0")]
    real, times = RecordLog._frame, iter(range(4))

    def replaced_first(self: RecordLog, key: str) -> Any:
        if self is log and next(times, 3) < 3:
            data = b"%d" % len(etags)
            etag = other.write(key, data, if_match=etags[-1], durable=False)
            assert etag is not None
            etags.append(etag)
        return real(self, key)

    monkeypatch.setattr(RecordLog, "_frame", replaced_first)
    record = log.read("actions/a")
    assert record is not None
    assert (record.data, record.etag) == (b"3", etags[3])
    times = iter(range(2))
    assert [stored.key for stored in log.aged("actions/")] == ["actions/a"]


@pytest.mark.parametrize("then_copied", [False, True])
def test_a_record_replaced_between_the_index_update_and_its_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_copied: bool
) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    if not then_copied:
        put(log, "first")
    etag = put(other, "a", b"1")
    if then_copied:
        assert names(log) == ["a"]
    before = iter([file_of(tmp_path).stat()])
    assert other.write("actions/a", b"2", if_match=etag, durable=False)
    if then_copied:  # it lies where the old one lay
        other.compact()
    real = RecordLog._status
    monkeypatch.setattr(log, "_status", lambda: next(before, None) or real(log))
    record = log.read("actions/a")
    assert record is not None
    assert record.data == b"2"


def test_a_caller_that_may_not_wait_does_not_read_large_amounts(tmp_path: Path) -> None:
    log, other = opened(tmp_path), opened(tmp_path)
    put(log, "large", b"x" * (log_module.QUICK_BYTES + 1))
    with pytest.raises(BlockingIOError):
        log.read("actions/large", wait=False)
    assert names(other) == ["large"]
    other.compact()
    with pytest.raises(BlockingIOError):
        log.read("actions/none", wait=False)
    assert names(log) == ["large"]
    assert log.read("actions/none", wait=False) is None


def test_two_processes_see_each_others_records_after_the_directory_was_replaced(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "store"
    log = opened(directory)
    put(log, "a")
    shutil.move(directory, tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        put(log, "b")
    other = opened(directory)
    put(other, "b")
    assert log.write("actions/b", b"mine", if_match=None, durable=False) is None
    other._begin_write(wait=True)
    with pytest.raises(BlockingIOError):
        log.write("actions/c", b"c", if_match=None, durable=False, wait=False)
    other._end_write()
    assert names(log) == names(other) == ["b"]


def test_a_forked_process_has_a_separate_write_lock(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot
log = RecordLog(StoreRoot(Path(sys.argv[1])), "actions")
log.write("actions/a", b"a", if_match=None, durable=False)
log._begin_write(wait=True)
log._mutex.release()
child = os.fork()
if not child:
    try:
        log.write("actions/b", b"b", if_match=None, durable=False, wait=False)
    except BlockingIOError:
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script, tmp_path], check=False).returncode == 7


def test_a_file_that_is_truncated_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    put(log, "a")
    put(log, "b", b"x" * 500)
    size = file_of(tmp_path).stat().st_size
    real = os.pread

    def cutting(descriptor: int, count: int, offset: int) -> bytes:
        os.truncate(file_of(tmp_path), size - 400)
        return real(descriptor, count, offset)

    monkeypatch.setattr(log_module.os, "pread", cutting)
    reader = opened(tmp_path)
    assert reader.read("actions/b") is None
    monkeypatch.undo()
    assert names(reader) == ["a"]
    put(reader, "c")
    assert names(opened(tmp_path)) == ["a", "c"]


def test_ages_count_from_the_write_and_survive_a_compaction(tmp_path: Path) -> None:
    log = RecordLog(StoreRoot(tmp_path), "actions", clock=lambda: 1000.0)
    put(log, "a", b"12345")
    log.compact()
    later = RecordLog(StoreRoot(tmp_path), "actions", clock=lambda: 1600.0)
    (stored,) = later.aged("actions/")
    assert (stored.key, stored.size_bytes, stored.age_s) == ("actions/a", 5, 600.0)
    assert not later.delete("actions/a", older_than_s=601.0)
    assert later.delete("actions/a", older_than_s=600.0)


@pytest.mark.slow
def test_three_killed_processes_that_write_delete_and_compact_lose_no_confirmed_record(
    tmp_path: Path,
) -> None:
    chance = random.Random(1)
    outputs: list[Path] = []
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        outputs.append(tmp_path / f"told-{len(outputs)}")
        command = [sys.executable, str(HERE / "log_writer.py"), str(tmp_path), str(len(outputs))]
        with outputs[-1].open("wb") as told:
            running.append(subprocess.Popen(command, stdout=told))

    try:
        for _ in range(3):
            start()
        for _ in range(KILLS):
            victim = chance.randrange(3)
            enough = outputs[-1].stat().st_size + chance.randrange(2000, 20_000)
            until(lambda n=enough: outputs[-1].stat().st_size > n or any_ended(running))
            assert not any_ended(running), "one found what must not be: see its error above"
            end(running.pop(victim))
            start()
    finally:
        for writer in running:
            end(writer)
    held, counted = told_by(outputs)
    for log in (opened(tmp_path), opened(tmp_path)):
        found = {stored.key for stored in log.aged("actions/") if "/shared/" not in stored.key}
        assert len(found ^ held) <= len(outputs), "only what was under way may be known or not"
        for key in found:
            record = log.read(key)
            assert record is not None
            assert record.data == key.encode() * 9
        for key, highest in counted.items():
            record = log.read(key)
            assert record is not None
            assert highest <= int(record.data) <= highest + len(outputs)
        log.compact()


def any_ended(running: "list[subprocess.Popen[bytes]]") -> bool:
    return any(writer.poll() is not None for writer in running)


def end(writer: "subprocess.Popen[bytes]") -> None:
    writer.kill()
    writer.wait()


def told_by(outputs: list[Path]) -> tuple[set[str], dict[str, int]]:
    """What is written and not deleted, and how far each was counted, by no two to the same."""
    held: set[str] = set()
    counted: dict[str, set[int]] = {}
    for path in outputs:
        for line in path.read_text().splitlines(keepends=True):
            done, _, what = line.rstrip("\n").partition(" ")
            if not line.endswith("\n"):
                continue
            if done == "counted":
                key, _, number = what.partition("=")
                assert int(number) not in counted.setdefault(key, set()), "two won"
                counted[key].add(int(number))
            else:
                (held.add if done == "written" else held.discard)(what)
    return held, {key: max(numbers) for key, numbers in counted.items()}
