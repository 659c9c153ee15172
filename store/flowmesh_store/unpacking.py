"""Unpacks tar files of trees: regular files and directories, never outside the target.

Used by the API's uploads and by the worker. The filters of ``tarfile`` came with Python 3.11.4, and
they allow links, which a tree may not contain.
"""

import errno
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

_MIB = 1 << 20
_NAME_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_GLOBAL_HEADERS_MAX = 16


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """Limits of a user's tree.

    Attributes:
        entries: the most files and directories.
        depth: the most directories above a file.
        name_bytes: the longest path in UTF-8.
    """

    entries: int = 100_000
    depth: int = 64
    name_bytes: int = 1024


def unpack(tar: tarfile.TarFile, directory: Path, limits: TreeLimits | None = None) -> None:
    """Writes the content of an open tar file below a directory, which is created if missing.

    Args:
        tar: the file; one from a user must be opened by :func:`open_tree`.
        directory: the target.
        limits: None for a trusted file.

    Raises:
        tarfile.TarError: it is damaged or beyond the limits, or an entry is a link or a special
            file, lies outside, or conflicts with another one. Earlier entries stay.
    """
    root = directory.resolve()
    root.mkdir(parents=True, exist_ok=True)
    count = 0
    while (member := _next(tar)) is not None:
        count += 1
        if limits is not None:
            _check(member, count, limits)
        target = Path(os.path.normpath(root / member.name))
        if not target.is_relative_to(root):
            raise tarfile.TarError(f"{_shown(member)} lies outside of the directory")
        if not (member.isdir() or member.isfile()) or member.issparse():
            raise tarfile.TarError(f"{_shown(member)} is not a regular file")
        try:
            _write(tar, member, target)
        except (FileExistsError, IsADirectoryError, NotADirectoryError, ValueError) as e:
            raise tarfile.TarError(f"{_shown(member)} cannot be made: {e}") from e
        except OSError as e:
            if e.errno != errno.ENAMETOOLONG:
                raise
            raise tarfile.TarError(f"{_shown(member)} cannot be made: {e.strerror}") from e


def open_tree(archive: Path) -> tarfile.TarFile:
    """Opens a tar file from a user, with bounds on its headers, which could fill the memory.

    Raises:
        tarfile.TarError: it is not a tar file; also raised while it is read.
    """
    globals_seen = 0

    class Header(tarfile.TarInfo):
        """A header that bounds its extension headers, which ``tarfile`` reads into memory."""

        @classmethod
        def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
            nonlocal globals_seen
            header = super().frombuf(buf, encoding, errors)
            globals_seen += header.type == tarfile.XGLTYPE
            if header.type in _NAME_HEADERS and header.size > _MIB:
                raise tarfile.ReadError("a header has more than 1 MiB")
            if globals_seen > _GLOBAL_HEADERS_MAX:
                raise tarfile.ReadError(f"there are more than {_GLOBAL_HEADERS_MAX} global headers")
            if header.type == tarfile.GNUTYPE_SPARSE:
                raise tarfile.ReadError(f"{_shown(header)} is a sparse file")
            return header

        def _proc_gnusparse_00(self, *_: Any) -> None:
            raise tarfile.ReadError(f"{_shown(self)} is a sparse file")

        _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00

    try:
        return tarfile.open(archive, "r:", tarinfo=Header)
    except RecursionError:
        raise _many_headers() from None


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        member = tar.next()
    except RecursionError:
        raise _many_headers() from None
    # ``tarfile`` collects all members that were read; the list would grow with the file.
    tar.members.clear()  # type: ignore[attr-defined]  # not in typeshed
    return member


def _many_headers() -> tarfile.TarError:
    return tarfile.ReadError("an entry has very many headers")


def _check(member: tarfile.TarInfo, count: int, limits: TreeLimits) -> None:
    if count > limits.entries:
        raise tarfile.TarError(f"there are more than {limits.entries:,} files and directories")
    if len(member.name.encode(errors="surrogateescape")) > limits.name_bytes:
        raise tarfile.TarError(
            f"the name {_shown(member)} is longer than {limits.name_bytes:,} bytes"
        )
    if len(PurePosixPath(member.name).parts) > limits.depth + 1:
        raise tarfile.TarError(f"{_shown(member)} lies in more than {limits.depth} directories")


def _shown(member: tarfile.TarInfo) -> str:
    longest = 80
    return repr(member.name if len(member.name) <= longest else member.name[:longest] + "…")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
