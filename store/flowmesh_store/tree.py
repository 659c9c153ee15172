"""Stores directories, such as models and adapters, as blobs: the files and a manifest of them.

The manifest is canonical JSON, so equal directories have equal digests: files are sorted by path,
and of times, owners and permissions only the executable bit is recorded. Links and special files
are refused.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec
import orjson

from flowmesh_core.decoding import decode
from flowmesh_core.errors import IdentityMismatchError, StoreError
from flowmesh_core.identity import tree_identity
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.hashing import digest_of, digest_of_open
from flowmesh_store.keys import check_digest
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import BlobFiles, BlobStore
from flowmesh_store.regular_files import open_regular

_FILES_AT_ONCE = 8
_EXECUTABLE = 0o755


class TreeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a directory.

    Attributes:
        path: relative, with slashes.
        bytes: its size.
        mode: 0o755 where it is executable, else 0.
    """

    path: str
    digest: Digest
    bytes: int
    mode: int = 0


class TreeManifest(msgspec.Struct, frozen=True, tag_field="kind", tag="tree"):
    """All files of a directory, sorted by path."""

    files: list[TreeFile]


@dataclass(frozen=True, slots=True)
class Tree:
    """A stored directory.

    Attributes:
        digest: the manifest's, where the store has it.
        size_bytes: the sum of its files' sizes.
        files: all of them.
    """

    digest: Digest
    size_bytes: int
    files: tuple[TreeFile, ...]

    def require(self, kind: str, identity: Digest) -> None:
        """Refuses a tree whose files are not those of an identity.

        Args:
            kind: ``model`` or ``adapter``.
            identity: the one that the reader expects.

        Raises:
            IdentityMismatchError: the manifest has another identity; names its blob.
        """
        if tree_identity(kind, self.files) != identity:
            raise IdentityMismatchError(
                f"the files are not those of the {kind} with the identity {identity}", self.digest
            )


class TreeBlobs(BlobStore, BlobFiles, Protocol):
    """Port of :func:`fetch_tree`; any backend or decorator implements it."""


async def store_tree(blobs: BlobStore, directory: Path) -> Tree:
    """Stores the files of a directory that the store lacks, then their manifest.

    Raises:
        StoreError: the directory is missing, or contains a link or a special file.
        BlobCorruptError: a file changed while it was stored.
        StoreFullError, StoreUnavailableError: the store failed.
    """
    paths = await asyncio.to_thread(_regular_files, directory)
    limit = asyncio.Semaphore(_FILES_AT_ONCE)

    async def store(path: Path) -> TreeFile:
        async with limit:
            file = await asyncio.to_thread(_describe, directory, path)
            await blobs.put(file.digest, path)
            return file

    files = sorted(await asyncio.gather(*map(store, paths)), key=_order)
    manifest = encode_tree(files)
    digest = digest_of(manifest)
    await blobs.put(digest, manifest)
    return _tree(digest, files)


async def read_tree(blobs: BlobStore, digest: Digest) -> Tree:
    """Reads and checks a manifest.

    Raises:
        StoreError: it is not a tree manifest, or names a path outside its directory.
        BlobNotFoundError, BlobCorruptError, StoreUnavailableError: it cannot be read.
    """
    return _tree(digest, decode_tree(await blobs.get(digest), digest))


async def read_tree_of(blobs: BlobStore, digest: Digest, kind: str, identity: Digest) -> Tree:
    """Reads the manifest of a model or an adapter, and refuses one of another identity.

    Args:
        blobs: has the content.
        digest: of the manifest.
        kind: ``model`` or ``adapter``.
        identity: the one that the reader expects.

    Raises:
        IdentityMismatchError: it is not the manifest of this directory.
        BlobNotFoundError, BlobCorruptError, StoreUnavailableError: it cannot be read.
    """
    data = await blobs.get(digest)
    try:
        tree = _tree(digest, decode_tree(data, digest))
    except StoreError as e:
        raise IdentityMismatchError(e.message, digest) from e
    tree.require(kind, identity)
    return tree


async def fetch_tree(
    blobs: TreeBlobs, digest: Digest, target: Path, expected: tuple[str, Digest] | None = None
) -> Tree:
    """Writes a stored directory, which appears complete or not at all.

    Args:
        blobs: has the content; every file is verified while it is written.
        digest: of the manifest.
        target: must not exist, or be an empty directory.
        expected: kind and identity that the tree must have (:func:`read_tree_of`); None for a
            checkpoint, which has none.

    Raises:
        StoreError: the manifest is invalid, or the target exists.
        BlobNotFoundError, BlobCorruptError, StoreFullError, StoreUnavailableError.
    """
    if expected is None:
        tree = await read_tree(blobs, digest)
    else:
        tree = await read_tree_of(blobs, digest, *expected)
    partial = target.with_name(temporary_name(f".{target.name}-"))
    limit = asyncio.Semaphore(_FILES_AT_ONCE)

    async def fetch(file: TreeFile) -> None:
        async with limit:
            path = partial / file.path
            found = await blobs.fetch(file.digest, path)
            if found != file.bytes:
                raise _invalid(digest, f"{file.path} has {found} bytes, not {file.bytes}")
            if file.mode:
                os.chmod(path, file.mode)

    try:
        _make_directories(partial, tree.files)
        await _run_all([fetch(file) for file in tree.files])
        # The last step, with no await after it: a cancellation would leave the target unreported.
        os.rename(partial, target)
    except BaseException as error:
        await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise store_error(error, str(target)) from error
        raise
    return tree


def encode_tree(files: list[TreeFile]) -> bytes:
    """Encodes a manifest canonically, independent of the order of the files."""
    manifest = TreeManifest(sorted(files, key=_order))
    return orjson.dumps(msgspec.to_builtins(manifest), option=orjson.OPT_SORT_KEYS)


def decode_tree(data: bytes, digest: Digest) -> list[TreeFile]:
    """Decodes a manifest, and refuses paths outside its directory.

    Raises:
        StoreError: it is invalid; the digest names it in the message.
    """
    try:
        files = decode(_decoder, data).files
    except msgspec.DecodeError as error:
        raise _invalid(digest, str(error)) from None
    directories = {parent for f in files for parent in PurePosixPath(f.path).parents}
    seen: set[str] = set()
    for file in files:
        check_digest(file.digest)
        if not _is_inside(file.path):
            raise _invalid(digest, f"the path {file.path!r} leaves the directory")
        if file.path in seen or PurePosixPath(file.path) in directories:
            raise _invalid(digest, f"the path {file.path!r} occurs twice")
        if file.mode not in (0, _EXECUTABLE) or file.bytes < 0:
            raise _invalid(digest, f"{file.path!r} has mode {file.mode:o}, {file.bytes} bytes")
        seen.add(file.path)
    return files


def _is_inside(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def _regular_files(directory: Path) -> list[Path]:
    try:
        return list(_walk(directory))
    except OSError as error:
        raise store_error(error, str(directory)) from error


def _walk(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
            else:
                raise StoreError(
                    "a stored directory may contain files and directories, no links or devices",
                    where=entry.path,
                    remedy="copy the directory with its links resolved (cp -rL) and store the copy",
                )


def _describe(directory: Path, path: Path) -> TreeFile:
    name = path.relative_to(directory).as_posix()
    try:
        name.encode()
        descriptor, status = open_regular(path)
        try:
            digest = digest_of_open(descriptor, status.st_size)
        finally:
            os.close(descriptor)
    except UnicodeEncodeError:
        raise StoreError(
            "a file's name is not UTF-8", where=repr(name), remedy="rename the file"
        ) from None
    except OSError as error:
        raise store_error(error, str(path)) from error
    mode = _EXECUTABLE if status.st_mode & stat.S_IXUSR else 0
    return TreeFile(name, digest, status.st_size, mode)


def _make_directories(root: Path, files: tuple[TreeFile, ...]) -> None:
    for directory in {(root / f.path).parent for f in files} | {root}:
        directory.mkdir(parents=True, exist_ok=True)


def _order(file: TreeFile) -> bytes:
    return file.path.encode()


def _tree(digest: Digest, files: list[TreeFile]) -> Tree:
    return Tree(digest, sum(f.bytes for f in files), tuple(files))


async def _run_all(fetches: list[Coroutine[None, None, None]]) -> None:
    """Runs coroutines concurrently; the first error cancels the others and is raised itself.

    ``except*`` would be simpler, but up to Python 3.11.3 it wraps a raised error once more.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for one in fetches:
                group.create_task(one)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _invalid(digest: Digest, reason: str) -> StoreError:
    return StoreError(
        f"the tree manifest is invalid: {reason}",
        where=f"cas/{digest}",
        remedy="store the directory again with store_tree",
    )


_decoder = msgspec.json.Decoder(TreeManifest)
