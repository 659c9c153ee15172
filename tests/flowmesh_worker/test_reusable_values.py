"""Files that a trusted host writes again: never while anybody, in any process, reads the value."""

import fcntl
import gc
import json
import mmap
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import PassedValue
from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import BatchCall, LoadedCode, sent_call
from flowmesh_worker.ipc import read_mappings, reusable_files
from flowmesh_worker.ipc.descriptor_socket import (
    DESCRIPTORS_MAX,
    DescriptorSocket,
    accept_with_descriptors,
    connect_with_descriptors,
    descriptor_pair,
)
from flowmesh_worker.ipc.file_locks import is_owned, is_read, lock_while_read, mark_owned, reopened
from flowmesh_worker.ipc.passed_values import receive_value, send_value
from flowmesh_worker.ipc.read_mappings import ReadMappings
from flowmesh_worker.ipc.reusable_files import ReusableFiles, file_bytes_of
from flowmesh_worker.ipc.shared_value import REUSABLE_SEALS, SHARED_BYTES_MAX, SharedValue

SIZE = 100_000
READER = """
import json, socket, sys, zlib
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.read_mappings import ReadMappings

descriptors = DescriptorSocket(socket.socket(fileno=int(sys.argv[1])), accepts_reusable=True)
mappings, held = ReadMappings(), {}
for line in sys.stdin:
    action, number = json.loads(line)
    if action == "take":
        held[number] = mappings.view(descriptors.receive(number))[1:]
    elif action == "drop":
        del held[number]
    mappings.drop_ended()
    print(json.dumps([[n, len(v), zlib.crc32(v)] for n, v in held.items()]), flush=True)
"""


class Reader:
    """A process that keeps parts of values, and what they have to be."""

    def __init__(self) -> None:
        ours, theirs = descriptor_pair()
        self.descriptors = DescriptorSocket(ours, accepts_reusable=True)
        self.sent: dict[int, bytes] = {}
        self.held: dict[int, bytes] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()

    def send(self, value: SharedValue, content: bytes) -> None:
        self.sent[self.descriptors.send(value)] = content

    def take(self) -> None:
        number = next(iter(self.sent))
        self.held[number] = self.sent.pop(number)
        self._do("take", number)

    def drop(self, number: int) -> None:
        del self.held[number]
        self._do("drop", number)

    def _do(self, action: str, number: int) -> None:
        """Has the process do something, and checks that all that it has is as it was sent."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([action, number]).encode() + b"\n")
        stdin.flush()
        found = json.loads(stdout.readline())
        expected = [[n, len(c) - 1, zlib.crc32(c[1:])] for n, c in self.held.items()]
        assert found == expected, "a value has changed while it was read"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self.descriptors.close()


@pytest.fixture
def ends() -> Iterator[tuple[DescriptorSocket, DescriptorSocket]]:
    """A socket that sends values, and one that accepts reusable ones."""
    gc.collect()  # what earlier tests have left would be closed during this one
    before = len(os.listdir("/proc/self/fd"))
    theirs, ours = descriptor_pair()
    sender = DescriptorSocket(theirs, accepts_reusable=True)
    receiver = DescriptorSocket(ours, accepts_reusable=True)
    yield sender, receiver
    sender.close()
    receiver.close()
    gc.collect()  # modules whose code keeps an array
    assert len(os.listdir("/proc/self/fd")) == before


def passed(value: SharedValue, ends: tuple[DescriptorSocket, DescriptorSocket]) -> SharedValue:
    """Returns a value as another process has it."""
    found = receive_value(send_value(value, ends[0]), ends[1])
    assert isinstance(found, SharedValue)
    return found


def inode(value: SharedValue) -> int:
    return os.fstat(value.fileno()).st_ino


def test_the_kernel_locks_a_file_as_long_as_any_copy_of_a_descriptor_or_a_mapping_lives() -> None:
    file = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(file, 1 << 16)

    def lock() -> int:
        descriptor = reopened(file)
        lock_while_read(descriptor)
        assert is_read(file)
        return descriptor

    os.close(lock())
    assert not is_read(file)
    one, other = descriptor_pair()
    descriptor = lock()
    socket.send_fds(one, [b"x"], [descriptor])
    os.close(descriptor)
    assert is_read(file), "it is on its way"
    _, (descriptor,), _, _ = socket.recv_fds(other, 1, 1)
    assert is_read(file)
    mapping = mmap.mmap(descriptor, 1 << 16, prot=mmap.PROT_READ)
    os.close(descriptor)
    assert is_read(file)
    mapping.close()
    assert not is_read(file)
    descriptor = lock()
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=(descriptor,))
    os.close(descriptor)
    assert is_read(file)
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    assert not is_read(file)
    descriptor = lock()
    socket.send_fds(one, [b"x"], [descriptor])
    os.close(descriptor)
    one.close()
    other.close()
    assert not is_read(file), "what was on its way is gone with its socket"
    mark_owned(file)
    reader = reopened(file)
    assert is_owned(reader)
    assert not is_read(file), "a mark is no reader"
    os.close(file)
    assert not is_owned(reader)
    os.close(reader)


def test_a_file_is_written_again_once_its_value_is_gone(
    ends: tuple[DescriptorSocket, DescriptorSocket],
) -> None:
    files, mappings = ReusableFiles(), ReadMappings()
    found = passed(files.value_of([b"head", b"a" * SIZE]), ends)
    first = inode(found)
    assert (found.is_reusable, found.size, found.read()) == (True, SIZE + 4, b"head" + b"a" * SIZE)
    view = mappings.view(found)
    assert (view.readonly, bytes(view)) == (True, b"head" + b"a" * SIZE)
    part = np.frombuffer(view[4:], "u1")[::2]
    del found, view
    other = files.value_of([b"b" * SIZE])
    assert inode(other) != first
    assert set(part.tolist()) == {ord("a")}
    with pytest.raises(ValueError, match="WRITEABLE"):
        part.setflags(write=True)
    del part
    again = passed(files.value_of([b"c" * (SIZE - 1000)]), ends)
    assert inode(again) == first
    assert bytes(mappings.view(again)) == b"c" * (SIZE - 1000)
    assert len(mappings._mappings) == 1


def test_only_its_producer_writes_a_reusable_file() -> None:
    value = ReusableFiles().value_of([b"a" * SIZE])
    writable = reopened(value.fileno(), os.O_RDWR)
    for change in (
        lambda: os.pwrite(writable, b"x", 0),
        lambda: mmap.mmap(writable, SIZE),
        lambda: os.ftruncate(writable, 1),
        lambda: os.posix_fallocate(writable, 0, 1 << 20),
    ):
        with pytest.raises(PermissionError):
            change()
    os.close(writable)


class Hosts:
    """A host whose values pass a hub to two readers, in a random order."""

    def __init__(self, rng: random.Random) -> None:
        self.files = ReusableFiles()
        self.written: list[int] = []
        self._rng = rng
        self._readers = [Reader() for _ in range(2)]
        theirs, ours = descriptor_pair()
        self._host = DescriptorSocket(theirs, accepts_reusable=True)
        self._hub = DescriptorSocket(ours, accepts_reusable=True)
        self._at_hub: list[tuple[int, bytes]] = []
        self._kills_left = 3

    def step(self) -> None:
        """Does something that is possible."""
        reader, acts = self._rng.choice(self._readers), [(8, self._make), (2, self.files.prepare)]
        if self._at_hub:
            acts.append((5, self._forward))
        if reader.sent:
            acts.append((5, reader.take))
        if reader.held:
            numbers = list(reader.held)
            acts.append((4, lambda: reader.drop(self._rng.choice(numbers))))
        if reader.held and self._kills_left:
            acts.append((1, lambda: self._kill(reader)))
        weights, choices = zip(*acts, strict=True)
        self._rng.choices(choices, weights)[0]()

    def drop_all(self) -> None:
        """Has nobody read a value any more."""
        for reader in self._readers:
            while reader.sent:
                reader.take()
            for number in list(reader.held):
                reader.drop(number)
        while self._at_hub:
            self._hub.receive(self._at_hub.pop(0)[0])

    def close(self) -> None:
        for reader in self._readers:
            reader.kill()
        self._host.close()
        self._hub.close()

    def _make(self) -> None:
        content = bytes([self._rng.randrange(256)]) * self._rng.choice([70_000, 72_000, 140_000])
        value = self.files.value_of([content[:500], content[500:]])
        self.written.append(inode(value))
        self._at_hub.append((self._host.send(value), content))

    def _forward(self) -> None:
        number, content = self._at_hub.pop(0)
        value = self._hub.receive(number)
        for reader in self._rng.sample(self._readers, self._rng.choice([1, 1, 2])):
            reader.send(value, content)

    def _kill(self, reader: Reader) -> None:
        self._kills_left -= 1
        reader.kill()
        self._readers[self._readers.index(reader)] = Reader()


def test_no_value_changes_while_it_is_read_whoever_reads_it_and_dies() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    hosts = Hosts(random.Random(seed))
    for _ in range(200):
        hosts.step()
    hosts.drop_all()
    assert all(file.is_free for file in hosts.files._all()), "nobody reads any value"
    assert len(set(hosts.written)) < len(hosts.written), "files were used again"
    hosts.close()


CODE = """
import numpy as np
kept = []

def make(batch):
    return [{"rows": np.full(call["n"], call["fill"], "u1")} for call in batch]

def read(batch):
    (call,) = batch
    if call["keep"]:
        kept.append(call["rows"][5:])
    return [[int(call["rows"].sum()), [int(rows.sum()) for rows in kept]]]
"""


def test_an_array_that_code_keeps_stays_as_it_is(
    ends: tuple[DescriptorSocket, DescriptorSocket],
) -> None:
    maker = ComponentCode([LoadedCode("make", CODE, "make", 1)], ReusableFiles())
    reader = ComponentCode([LoadedCode("read", CODE, "read", 1)], ReusableFiles())

    def passes(fill: int, *, keep: bool) -> tuple[int, Any]:
        body = msgspec.json.encode({"n": SIZE, "fill": fill})
        (made,) = maker.run("make", [BatchCall(body, {}, "", False, {}, True)])
        assert isinstance(made.value, SharedValue)
        value, file = passed(made.value, ends), inode(made.value)
        del made
        call = BatchCall(
            msgspec.json.encode({"keep": keep}), {}, "", True, {"rows": PassedValue(path=("rows",))}
        )
        (result,) = reader.run("read", [call], [{"rows": value}])
        maker.prepare()
        return file, msgspec.json.decode(result.body)

    kept_in, _ = passes(7, keep=True)
    found = set()
    for number in range(100):
        fill = number % 5
        file, sums = passes(fill, keep=False)
        assert sums == [fill * SIZE, [7 * (SIZE - 5)]]
        found.add(file)
    assert kept_in not in found
    assert len(found) <= 2


def test_code_that_keeps_many_arrays_goes_on_getting_values(
    ends: tuple[DescriptorSocket, DescriptorSocket],
) -> None:
    reader = ComponentCode([LoadedCode("read", CODE, "read", 1)], ReusableFiles())
    for number in range(DESCRIPTORS_MAX + 10):
        if number % reusable_files.FILES_MAX == 0:  # another producer, or the same once more
            maker = ComponentCode([LoadedCode("make", CODE, "make", 1)], ReusableFiles())
        fill = number % 7
        body = msgspec.json.encode({"n": SIZE, "fill": fill})
        (made,) = maker.run("make", [BatchCall(body, {}, "", False, {}, True)])
        assert isinstance(made.value, SharedValue)
        value = passed(made.value, ends)
        call = BatchCall(
            msgspec.json.encode({"keep": True}), {}, "", True, {"rows": PassedValue(path=("rows",))}
        )
        (result,) = reader.run("read", [call], [{"rows": value}])
        del value
        expected = [(n % 7) * (SIZE - 5) for n in range(number + 1)]
        assert msgspec.json.decode(result.body) == [fill * SIZE, expected]
        reader.prepare()
        maker.prepare()


def test_a_value_of_more_bytes_than_its_file_is_refused(
    ends: tuple[DescriptorSocket, DescriptorSocket],
) -> None:
    for size in (0, file_bytes_of(SIZE) + 1, SHARED_BYTES_MAX + 1, 1 << 63):
        value = ReusableFiles().value_of([b"a" * SIZE])
        value.size = size
        with pytest.raises(ProtocolError, match="expected 1 to"):
            passed(value, ends)


@pytest.mark.parametrize(
    "seals", [0, REUSABLE_SEALS & ~0x10, REUSABLE_SEALS & ~fcntl.F_SEAL_SHRINK, 0x10]
)
def test_a_file_that_others_can_change_is_refused(
    ends: tuple[DescriptorSocket, DescriptorSocket], seals: int
) -> None:
    value = SharedValue.spare(SIZE)
    value.is_sealed = False
    fcntl.fcntl(value.fileno(), fcntl.F_ADD_SEALS, seals)
    with pytest.raises(ProtocolError, match="not sealed"):
        passed(value, ends)


def test_an_end_that_accepts_no_reusable_file_gets_a_sealed_copy_and_refuses_others() -> None:
    theirs, ours = descriptor_pair()
    sender, receiver = DescriptorSocket(theirs), DescriptorSocket(ours)
    value = ReusableFiles().value_of([b"a" * SIZE])
    copy = receive_value(send_value(value, sender), receiver)
    assert isinstance(copy, SharedValue)
    assert (copy.is_sealed, copy.is_reusable, copy.read()) == (True, False, b"a" * SIZE)
    with pytest.raises(ProtocolError, match="not sealed"):
        receiver.receive(sender.send(value))
    sender.close()
    receiver.close()


@pytest.mark.parametrize("is_own", [True, False])
async def test_reusable_files_pass_between_processes_of_one_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    if not is_own:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client, sender = await connect_with_descriptors(str(tmp_path / "s"))
        server, _ = listener.accept()
        receiver = await accept_with_descriptors(server)
    assert (sender.accepts_reusable, receiver.accepts_reusable) == (is_own, is_own)
    for end in (client, server, sender, receiver):
        end.close()


def test_a_file_that_went_to_a_sandbox_is_not_written_again_and_has_nothing_but_its_value() -> None:
    files = ReusableFiles()
    first = inode(files.value_of([b"secret" * 20_000]))
    value = files.value_of([b"a" * 119_000])
    assert inode(value) == first
    theirs, ours = descriptor_pair()
    host, sandbox = DescriptorSocket(theirs), DescriptorSocket(ours, accepts_reusable=True)
    call = BatchCall(b"{}", {}, "", True, {"rows": PassedValue(path=("rows",))})
    named = sent_call(call, {"rows": value}, host).passed["rows"]
    found = receive_value(named, sandbox)
    assert isinstance(found, SharedValue)
    assert (found.is_reusable, found.read(), named.path) == (False, b"a" * 119_000, ("rows",))
    whole = os.pread(found.fileno(), 1 << 20, 0)
    assert whole.rstrip(b"\0") == b"a" * 119_000
    fcntl.flock(found.fileno(), fcntl.LOCK_UN)  # as code in a sandbox may do
    value.end_reuse()
    other = reopened(found.fileno())
    again = SharedValue(other, found.size, is_sealed=False, is_reusable=True)
    again.end_reuse()
    del value, again
    assert inode(files.value_of([b"b" * 119_000])) != first
    assert found.read() == b"a" * 119_000
    host.close()
    sandbox.close()


def test_a_file_that_goes_to_a_sandbox_while_its_producer_looks_for_readers_is_not_written_again(
    ends: tuple[DescriptorSocket, DescriptorSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ReusableFiles()
    first = files.value_of([b"a" * SIZE])
    received = passed(first, ends)
    del first
    ended = reusable_files.has_ended_reuse

    def has_ended(descriptor: int) -> bool:
        before = ended(descriptor)
        if received.is_reusable:  # now its reader gives it to code that returns the lock
            received.end_reuse()
            fcntl.flock(received.fileno(), fcntl.LOCK_UN)
        return before

    monkeypatch.setattr(reusable_files, "has_ended_reuse", has_ended)
    second = files.value_of([b"b" * SIZE])
    assert inode(second) != inode(received)
    assert received.read() == b"a" * SIZE


def test_the_files_of_a_process_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reusable_files, "FILES_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(reusable_files, "READY_BYTES_MAX", 300_000)
    files = ReusableFiles()
    made = [files.value_of([b"a" * SIZE]) for _ in range(12)]
    assert files._bytes <= 1 << 20
    assert {value.is_reusable for value in made} == {True, False}
    assert {value.read() for value in made} == {b"a" * SIZE}
    del made
    files.prepare()
    assert 0 < files._bytes <= 300_000
    larger = files.value_of([b"a" * 900_000])
    assert larger.is_reusable, "free files make room"
    assert files._bytes <= 1 << 20


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reusable_files, "FILES_MAX", 3)
    files = ReusableFiles()
    made = [files.value_of([b"a" * SIZE]) for _ in range(5)]
    assert [value.is_reusable for value in made] == [True] * 3 + [False] * 2
    made.pop(0)
    assert files.value_of([b"b" * SIZE]).is_reusable


def test_a_value_that_finds_no_free_file_leaves_one_more_until_they_are_not_used() -> None:
    files = ReusableFiles()
    made = [files.value_of([b"a" * SIZE]) for _ in range(3)]
    files.prepare()
    assert files._count == 3
    del made
    for _ in range(reusable_files._UNUSED_ROUNDS_MAX - 1):
        files.value_of([b"a" * SIZE])
        files.prepare()
    assert files._count == 3, "one is enough now, but that may change"
    for _ in range(3):
        files.value_of([b"a" * 200_000])
        files.prepare()
    assert sorted(file.size for file in files._all()) == [
        *(file_bytes_of(SIZE), file_bytes_of(200_000))
    ]
    for _ in range(reusable_files._UNUSED_ROUNDS_MAX):
        files.value_of([b"a" * 200_000])
        files.prepare()
    assert [file.size for file in files._all()] == [file_bytes_of(200_000)]


def test_files_that_went_to_a_sandbox_are_replaced() -> None:
    files = ReusableFiles()
    made = [files.value_of([b"a" * SIZE]) for _ in range(3)]
    for value in made[:2]:
        value.end_reuse()
    files.prepare()
    assert (files._count, sum(file.is_free for file in files._all())) == (3, 2)
    made = [files.value_of([b"a" * SIZE]) for _ in range(2)]
    assert files._count == 3


def test_where_the_kernel_refuses_reusable_files_a_value_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no such seal")

    monkeypatch.setattr(reusable_files, "mark_owned", refuse)
    files = ReusableFiles()
    value = files.value_of([b"a" * SIZE])
    assert (value.is_sealed, value.read()) == (True, b"a" * SIZE)
    files.prepare()
    assert (files._count, files._bytes) == (0, 0)


@pytest.mark.parametrize("size", [65_536, 70_000, 1 << 20, (1 << 20) + 200, SHARED_BYTES_MAX])
def test_a_file_is_an_eighth_larger_than_its_value_at_most(size: int) -> None:
    assert size <= file_bytes_of(size) <= size * 9 / 8 + 2 * mmap.PAGESIZE
    assert file_bytes_of(size) % mmap.PAGESIZE == 0
    assert file_bytes_of(1 << 24) == file_bytes_of((1 << 24) + 300)


def test_mappings_are_kept_for_files_that_are_kept_and_bounded(
    ends: tuple[DescriptorSocket, DescriptorSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_mappings, "MAPPINGS_MAX", 3)
    files, mappings = ReusableFiles(), ReadMappings()
    values = [passed(files.value_of([bytes([i]) * SIZE]), ends) for i in range(5)]
    views = [mappings.view(value) for value in values]
    assert (len(mappings._mappings), mappings.has_new) == (3, True)
    assert [view[9] for view in views] == [0, 1, 2, 3, 4], "views outlive their mapping"
    mappings.drop_ended()
    assert (len(mappings._mappings), mappings.has_new) == (3, False)
    mappings.view(values[4])
    assert not mappings.has_new
    monkeypatch.setattr(read_mappings, "MAPPED_BYTES_MAX", 2 * file_bytes_of(SIZE))
    mappings.view(values[0])
    assert list(mappings._mappings)[-1][1] == inode(values[0])
    assert len(mappings._mappings) == 2
    del files
    mappings.drop_ended()
    assert (len(mappings._mappings), mappings._bytes) == (0, 0)
    assert [view[9] for view in views] == [0, 1, 2, 3, 4]
