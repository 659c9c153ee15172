"""Unpacks tar files of trees: plain files and directories, and nothing outside of where they go.

The filters of ``tarfile`` came with Python 3.11.4, and let links pass, which no tree holds.
"""

import os
import shutil
import tarfile
from pathlib import Path


def unpack(tar: tarfile.TarFile, directory: Path) -> None:
    """Writes the content of an open tar file below a directory, which is made where it is missing.

    Raises:
        tarfile.TarError: it is damaged, or an entry is a link or a special file, lies outside, or
            is in the way of another one. What came before it stays.
    """
    root = directory.resolve()
    root.mkdir(parents=True, exist_ok=True)
    for member in tar:
        target = Path(os.path.normpath(root / member.name))
        if not target.is_relative_to(root):
            raise tarfile.TarError(f"{member.name!r} lies outside of the directory")
        if not (member.isdir() or member.isfile()):
            raise tarfile.TarError(f"{member.name!r} is no plain file")
        try:
            _write(tar, member, target)
        except (FileExistsError, IsADirectoryError, NotADirectoryError, ValueError) as e:
            raise tarfile.TarError(f"{member.name!r} cannot be made: {e}") from e


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
