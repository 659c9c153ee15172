"""Addresses on a Hugging Face hub, ``hf://…``, read in the same way at both ends.

The compiler reads the user's address and gives a canonical one to the import's steps; the workers
that resolve and fetch read that. There is one reader, so that neither refuses the other's form.
"""

import re
from dataclasses import dataclass

SCHEME = "hf://"
ROW_ENDINGS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Suffixes of files with rows."""
_DATASETS = "datasets"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_REVISION = re.compile(r"[A-Za-z0-9._/-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY_PARTS = 2


class HubAddressError(ValueError):
    """A text that is not an address on a hub; the message shows the form of one."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A repository, or one of its files, at a revision.

    Attributes:
        dataset: whether it is a data set, and not a model.
        repository: ``ORG/NAME``.
        file: the path of one file in it; empty for the repository.
        revision: a branch, tag or commit; empty for the hub's default branch.
    """

    dataset: bool
    repository: str
    file: str = ""
    revision: str = ""

    @property
    def fixed(self) -> bool:
        """Whether the revision is a commit, whose content never changes."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def unpinned(self) -> str:
        """The canonical address without its revision."""
        kind = f"{_DATASETS}/" if self.dataset else ""
        return f"{SCHEME}{kind}{self.repository}{f'/{self.file}' if self.file else ''}"

    @property
    def uri(self) -> str:
        """The canonical address."""
        return self.unpinned + (f"@{self.revision}" if self.revision else "")


def read_hub_address(text: str, *, dataset: bool) -> HubAddress:
    """Reads an address.

    A data set is ``hf://ORG/NAME`` or ``hf://datasets/ORG/NAME``, each with ``/FILE`` for one of
    its files and ``@REVISION`` at the end. A model is ``hf://ORG/NAME[@REVISION]``.

    Args:
        text: begins with ``hf://``.
        dataset: whether a data set is meant, and not a model.

    Raises:
        HubAddressError: it is of another form.
    """
    path, at, revision = text.removeprefix(SCHEME).rpartition("@")
    if not at:
        path, revision = revision, ""
    parts = path.split("/")
    if dataset and parts[0] == _DATASETS:
        del parts[0]
    _check(text, parts, dataset=dataset)
    if at and (not _REVISION.fullmatch(revision) or revision.endswith(ROW_ENDINGS)):
        raise HubAddressError(
            f"{text!r}: {revision!r} is not a revision, which stands at the end:"
            f" {_form(dataset=dataset)}"
        )
    repository = "/".join(parts[:_REPOSITORY_PARTS])
    return HubAddress(dataset, repository, "/".join(parts[_REPOSITORY_PARTS:]), revision)


def _check(text: str, parts: list[str], *, dataset: bool) -> None:
    named = parts[:_REPOSITORY_PARTS]
    known = len(named) == _REPOSITORY_PARTS and all(_NAME.fullmatch(p) for p in named)
    if not dataset and parts[0] == _DATASETS:
        raise HubAddressError(f"{text!r} is a data set; write dataset: {text}")
    if not known or any(p in ("", ".", "..") for p in parts):
        names = "names no repository" if dataset else "is not a hub address"
        raise HubAddressError(f"{text!r} {names}; write {_form(dataset=dataset)}")
    if not dataset and len(parts) > _REPOSITORY_PARTS:
        raise HubAddressError(f"{text!r} is not a hub address; write {_form(dataset=False)}")


def _form(*, dataset: bool) -> str:
    return "hf://datasets/ORG/NAME[/FILE][@REVISION]" if dataset else "hf://org/name[@revision]"
