"""A worker remembers which chunks it compared, in a bounded file that may break at any moment."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from flowmesh_core.dataset import ChunkRef, Manifest, Schema
from flowmesh_core.identity import digest_bytes
from flowmesh_worker.data.verified_chunks import VerifiedChunks

SCOPES = ("ns-a", "group-x")
SCHEMA = Schema.of({"a": "int"})


def chunk(name: object) -> ChunkRef:
    data = f"{name}".encode()
    return ChunkRef(digest_bytes(b"rows " + data), digest_bytes(data), 1, 10)


def manifest(*names: object) -> Manifest:
    return Manifest(SCHEMA, tuple(map(chunk, names)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "verified-chunks"


def test_added_chunks_are_still_known_after_a_restart(path: Path) -> None:
    given = manifest("a", "b", "c")
    verified = VerifiedChunks(path)
    assert verified.numbers(given, SCOPES) == ()
    verified.add(given, (0, 2), SCOPES)
    assert verified.numbers(given, SCOPES) == (0, 2)
    assert VerifiedChunks(path).numbers(manifest("c", "b", "a"), SCOPES) == (0, 2)


def test_readers_of_other_scopes_compare_for_themselves(path: Path) -> None:
    verified = VerifiedChunks(path)
    verified.add(manifest("a"), (0,), SCOPES)
    assert verified.numbers(manifest("a"), ("ns-b",)) == ()
    assert verified.numbers(manifest("a"), SCOPES) == (0,)


@pytest.mark.parametrize("field", ["blob", "rows", "count"])
def test_a_verified_chunk_is_identified_by_its_blob_its_rows_and_their_number(
    path: Path, field: str
) -> None:
    verified = VerifiedChunks(path)
    verified.add(manifest("a"), (0,), SCOPES)
    other = 2 if field == "count" else getattr(chunk("b"), field)
    changed = Manifest(SCHEMA, (replace(chunk("a"), **{field: other}),))
    assert verified.numbers(changed, SCOPES) == ()


def test_a_verified_chunk_is_identified_by_its_schema(path: Path) -> None:
    verified = VerifiedChunks(path)
    verified.add(manifest("a"), (0,), SCOPES)
    assert verified.numbers(Manifest(Schema.of({"a": "float"}), (chunk("a"),)), SCOPES) == ()


def test_the_file_is_bounded_and_the_most_recently_used_entries_remain(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "flowmesh_worker.data.verified_chunks"
    monkeypatch.setattr(f"{module}._SETS", 1)  # eight entries
    monkeypatch.setattr(f"{module}._FILE_BYTES", 48 + 8 * 16)
    verified = VerifiedChunks(path)
    for n in range(8):
        verified.add(manifest(n), (0,), SCOPES)
    assert verified.numbers(manifest(0), SCOPES) == (0,)
    for n in range(8, 15):
        verified.add(manifest(n), (0,), SCOPES)
    assert verified.numbers(manifest(*range(15)), SCOPES) == (0, *range(8, 15))
    assert path.stat().st_size == 48 + 8 * 16


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "magic", "directory"])
def test_a_damaged_file_counts_as_empty(path: Path, damage: str) -> None:
    given = manifest("a")
    first = VerifiedChunks(path)
    first.add(given, (0,), SCOPES)
    first.close()
    whole = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(whole[:-1])
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            path.write_bytes(b"something else")
        case "magic":
            path.write_bytes(b"x" + whole[1:])
        case "directory":
            path.unlink()
            path.mkdir()
    verified = VerifiedChunks(path)
    assert verified.numbers(given, SCOPES) == ()
    verified.add(given, (0,), SCOPES)
    assert verified.numbers(given, SCOPES) == ((0,) if damage != "directory" else ())


def test_a_half_written_entry_is_ignored(path: Path) -> None:
    given = manifest("a")
    verified = VerifiedChunks(path)
    verified.add(given, (0,), SCOPES)
    whole = bytearray(path.read_bytes())
    [place] = [i for i in range(48, len(whole), 16) if any(whole[i : i + 16])]
    whole[place + 8 : place + 16] = bytes(8)
    path.write_bytes(whole)
    assert VerifiedChunks(path).numbers(given, SCOPES) == ()


def test_entries_of_another_file_are_not_valid_in_this_one(path: Path, tmp_path: Path) -> None:
    """Who can choose chunks cannot choose entries: they are made with a key of the file."""
    given = manifest("a")
    for each in (path, tmp_path / "other"):
        VerifiedChunks(each).add(given, (0,), SCOPES)
    assert path.read_bytes()[48:] != (tmp_path / "other").read_bytes()[48:]
