"""Values in memory that pass between processes: only sealed ones are read, and none is left."""

import fcntl
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import VALUE_BYTES_MAX
from flowmesh_worker.ipc.descriptor_socket import (
    DESCRIPTORS_MAX,
    DescriptorSocket,
    descriptor_pair,
)
from flowmesh_worker.ipc.passed_values import mapped, receive_value, send_value
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MAX, SharedValue
from flowmesh_worker.ipc.spare_files import SpareFiles

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, DescriptorSocket]]:
    """A socket that sends whatever it likes, and the end that receives."""
    gc.collect()  # what earlier tests have left would be closed during this one
    before = len(os.listdir("/proc/self/fd"))
    theirs, ours = descriptor_pair()
    receiver = DescriptorSocket(ours)
    yield theirs, receiver
    receiver.close()
    theirs.close()
    assert len(os.listdir("/proc/self/fd")) == before


def memory(size: int, seals: int, content: bytes = b"") -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    os.truncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def passed(theirs: socket.socket, number: int, *descriptors: int) -> None:
    socket.send_fds(theirs, [number.to_bytes(8)], list(descriptors))
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_value_passes_with_its_bytes_and_cannot_change(
    ends: tuple[socket.socket, DescriptorSocket],
) -> None:
    theirs, receiver = ends
    sender = DescriptorSocket(theirs.dup())
    value = SharedValue.sealed([b"head", b"x" * 100_000])
    named = send_value(value, sender, ("part",))
    with pytest.raises(PermissionError):
        os.write(value.fileno(), b"y")
    with pytest.raises(PermissionError):
        os.truncate(value.fileno(), 5)
    found = receive_value(named, receiver)
    assert isinstance(found, SharedValue)
    assert (found.size, found.read(), named.path) == (100_004, b"head" + b"x" * 100_000, ("part",))
    view = mapped(found)
    del found, value
    assert bytes(view[:5]) == b"headx"  # type: ignore[index]
    sender.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: memory(100, 0), "not sealed"),
        (lambda path: memory(100, SEALS & ~fcntl.F_SEAL_WRITE), "not sealed"),
        (lambda path: memory(100, SEALS & ~fcntl.F_SEAL_SHRINK), "not sealed"),
        (lambda path: memory(100, SEALS & ~fcntl.F_SEAL_GROW), "not sealed"),
        (lambda path: memory(SHARED_BYTES_MAX + 1, SEALS), "expected 1 to"),
        (lambda path: memory(0, SEALS), "has 0 bytes"),
        (lambda path: os.open(path, os.O_RDONLY), "not a value in memory"),
        (lambda path: os.open(path, os.O_PATH), "not a value in memory"),
        (lambda path: os.open("/dev/zero", os.O_RDONLY), "not a value in memory"),
        (lambda path: os.memfd_create("x"), "not sealed"),
    ],
)
def test_what_is_not_a_sealed_value_is_refused_and_closed(
    ends: tuple[socket.socket, DescriptorSocket], tmp_path: Path, make: object, words: str
) -> None:
    theirs, receiver = ends
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    passed(theirs, 1, make(file))  # type: ignore[operator]
    passed(theirs, 2, memory(3, SEALS, b"yes"))
    with pytest.raises(ProtocolError, match=words):
        receiver.receive(1)
    assert receiver.receive(2).read() == b"yes"


def test_values_that_no_message_names_are_closed(
    ends: tuple[socket.socket, DescriptorSocket],
) -> None:
    theirs, receiver = ends
    for number in (1, 2, 3):
        passed(theirs, number, memory(1, SEALS, str(number).encode()))
    assert receiver.receive(3).read() == b"3"
    with pytest.raises(ProtocolError, match="not passed"):
        receiver.receive(2)
    passed(theirs, 9, memory(1, SEALS, b"9"))
    with pytest.raises(ProtocolError, match="was not passed"):
        receiver.receive(4)


def test_more_than_one_descriptor_a_packet_and_packets_without_one_are_refused(
    ends: tuple[socket.socket, DescriptorSocket],
) -> None:
    theirs, receiver = ends
    passed(theirs, 1, memory(1, SEALS, b"1"), memory(1, SEALS, b"2"))
    theirs.send((1).to_bytes(8))
    socket.send_fds(theirs, [b"1" * 20], [theirs.fileno()])
    for _ in range(3):
        with pytest.raises(ProtocolError, match="another way"):
            receiver.receive(1)


def test_the_values_that_are_open_at_once_are_bounded(
    ends: tuple[socket.socket, DescriptorSocket],
) -> None:
    theirs, receiver = ends
    opened = []
    for number in range(1, DESCRIPTORS_MAX + 1):
        passed(theirs, number, memory(1, SEALS, b"1"))
        opened.append(receiver.receive(number))
    passed(theirs, DESCRIPTORS_MAX + 1, memory(1, SEALS, b"1"))
    with pytest.raises(ProtocolError, match="are open"):
        receiver.receive(DESCRIPTORS_MAX + 1)
    opened.pop()
    passed(theirs, DESCRIPTORS_MAX + 2, memory(1, SEALS, b"1"))
    assert receiver.receive(DESCRIPTORS_MAX + 2).read() == b"1"


@pytest.mark.parametrize("size", [2 << 20, (2 << 20) - 77, (3 << 20) + 5, 100])
def test_memory_that_was_prepared_holds_a_value_of_any_size(size: int) -> None:
    files = SpareFiles()
    files.value_of([bytes(2 << 20)])
    files.prepare()
    (spare,) = files._spare
    content = os.urandom(size)
    value = files.value_of([content[:50], content[50:]])
    assert value is spare
    found = SharedValue.received(os.dup(value.fileno()))
    assert (found.size, found.read()) == (size, content)


def test_the_memory_that_is_prepared_is_bounded() -> None:
    files = SpareFiles()
    for size in (20 << 20, 20 << 20, 100, 12 << 20):
        files.value_of([bytes(size)])
    files.prepare()
    assert [value.size for value in files._spare] == [20 << 20, 12 << 20]
    files.prepare()
    assert len(files._spare) == 2


def test_a_value_whose_descriptor_cannot_pass_travels_in_the_message_if_it_fits() -> None:
    theirs, ours = descriptor_pair()
    theirs.close()
    sender = DescriptorSocket(ours)
    named = send_value(SharedValue.sealed([b"x" * 100_000]), sender)
    assert (named.number, named.data) == (0, b"x" * 100_000)
    with pytest.raises(ProtocolError, match="cannot pass as shared memory"):
        send_value(SharedValue.sealed([bytes(VALUE_BYTES_MAX + 1)]), sender)
    sender.close()
