"""Attacker: T1, a tenant with the right to upload.
Action: sends tar files with deep paths, very many entries, long names, and headers of gigabytes.
Must not happen: an answer of 5xx, files outside of the upload, or memory by the header's word.
"""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.attacks.one_fabric import fabric_at

from flowmesh_store.unpacking import TreeLimits, open_tree, unpack

HONEST = [("config.json", b"{}"), ("a/b/c/merges.txt", b"w" * 1_000)]
PATH = "/v1/trees?namespace=team-a&kind=model"


def packed(entries: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def global_headers() -> bytes:
    record = b"13 key=value\n"
    block = record + bytes(512 - len(record))
    return (header(tarfile.XGLTYPE, len(record)) + block) * 50 + packed(HONEST)


def many_headers_of_one_entry() -> bytes:
    record = b"13 key=value\n"
    block = record + bytes(512 - len(record))
    return (header(tarfile.XHDTYPE, len(record)) + block) * 3_000 + packed(HONEST)


def sparse_in_a_pax_header() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("sparse")
        info.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "sparse",
            "GNU.sparse.realsize": str(1 << 40),
        }
        info.size = 1024
        tar.addfile(info, io.BytesIO(bytes(1024)))
    return data.getvalue()


ODD: dict[str, tuple[Callable[[], bytes], str]] = {
    "deep": (lambda: packed([("d/" * 65 + "f", b"")]), "more than 64 directories"),
    "very deep": (lambda: packed([("d/" * 50_000 + "f", b"")]), "longer than 1,024 bytes"),
    "long name": (lambda: packed([("d/" + "é" * 600, b"")]), "longer than 1,024 bytes"),
    "a part too long for the disk": (lambda: packed([("f" * 300, b"")]), "cannot be made"),
    "a name of gigabytes": (lambda: header(tarfile.GNUTYPE_LONGNAME, 3 << 30), "more than 1 MiB"),
    "a pax header of gigabytes": (lambda: header(tarfile.XHDTYPE, 3 << 30), "more than 1 MiB"),
    "global headers": (global_headers, "more than 16 global headers"),
    "many headers of one entry": (many_headers_of_one_entry, "very many headers"),
    "sparse": (lambda: header(tarfile.GNUTYPE_SPARSE, 0), "is a sparse file"),
    "sparse in a pax header": (sparse_in_a_pax_header, "is a sparse file"),
    "outside": (lambda: packed([("../../out", b"x")]), "lies outside"),
    "cut off": (lambda: packed(HONEST)[:600], "body is not a tar file"),
}


async def test_malformed_trees_are_refused_as_client_errors_and_an_honest_one_is_accepted(
    tmp_path: Path,
) -> None:
    async with fabric_at(tmp_path) as fabric:
        for name, (make, reason) in ODD.items():
            told = await fabric.call("POST", PATH, data=io.BytesIO(make()), status=400)
            assert reason in told["error"]["message"], (name, told)
            assert told["error"]["remedy"], name
        found = await fabric.call("POST", PATH, data=packed(HONEST), status=201)
        assert (found["kind"], found["size_bytes"]) == ("model", 1_002)


def test_a_tree_at_the_limits_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(packed([("d/" * 64 + "f", b"x"), ("e/" + "é" * 100, b"y")]))
    with open_tree(archive) as tar:
        unpack(tar, tmp_path / "tree", TreeLimits(entries=2))
    assert (tmp_path / "tree" / ("d/" * 64) / "f").read_bytes() == b"x"
    with open_tree(archive) as tar, pytest.raises(tarfile.TarError, match="more than 1 files"):
        unpack(tar, tmp_path / "other", TreeLimits(entries=1))
    assert TreeLimits() == TreeLimits(entries=100_000, depth=64, name_bytes=1_024)
