import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from flowmesh_store.unpacking import unpack

Entry = tuple[str, bytes, bytes]


def packed(*entries: Entry) -> tarfile.TarFile:
    """A tar file of entries: name, type, and content or the target of a link."""
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, kind, content in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, BytesIO(content))
            else:
                info.linkname = content.decode()
                tar.addfile(info)
    data.seek(0)
    return tarfile.open(fileobj=data)


def test_files_and_directories_are_written(tmp_path: Path) -> None:
    directory = (".", tarfile.DIRTYPE, b"")
    inner = ("./inner", tarfile.DIRTYPE, b"")
    file = ("./inner/a.txt", tarfile.REGTYPE, b"text")
    deep = ("b/c/d.bin", tarfile.REGTYPE, bytes(100_000))
    with packed(directory, inner, file, deep) as tar:
        unpack(tar, tmp_path / "tree")
    assert (tmp_path / "tree" / "inner" / "a.txt").read_bytes() == b"text"
    assert (tmp_path / "tree" / "b" / "c" / "d.bin").stat().st_size == 100_000


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (("../out", tarfile.REGTYPE, b"x"), "lies outside"),
        (("a/../../out", tarfile.REGTYPE, b"x"), "lies outside"),
        (("/etc/out", tarfile.REGTYPE, b"x"), "lies outside"),
        (("link", tarfile.SYMTYPE, b"/etc/passwd"), "not a regular file"),
        (("hard", tarfile.LNKTYPE, b"first"), "not a regular file"),
        (("pipe", tarfile.FIFOTYPE, b""), "not a regular file"),
        (("first/below", tarfile.REGTYPE, b"x"), "cannot be made"),
        (("first", tarfile.DIRTYPE, b""), "cannot be made"),
    ],
)
def test_an_entry_that_is_not_part_of_a_tree_is_refused(
    tmp_path: Path, entry: Entry, reason: str
) -> None:
    first = ("first", tarfile.REGTYPE, b"1")
    with packed(first, entry) as tar, pytest.raises(tarfile.TarError, match=reason):
        unpack(tar, tmp_path / "tree")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["first", "tree"]


def test_a_truncated_tar_file_is_refused(tmp_path: Path) -> None:
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("a")
        info.size = 10_000
        tar.addfile(info, BytesIO(bytes(10_000)))
    with (
        tarfile.open(fileobj=BytesIO(data.getvalue()[:5_000])) as tar,
        pytest.raises(tarfile.TarError),
    ):
        unpack(tar, tmp_path)
