"""Configurations and splits of a data set's hub repository, and the files of each.

They are what the repository itself says at a commit: the ``configs`` of its card, which the hub
sends with the list of files, or else the names of its files, by the conventions that the library
``datasets`` documents. Loading scripts are not run.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from flowmesh_core.catalog.hub_addresses import HubAddress
from flowmesh_core.catalog.patterns import PatternError, schema_pattern
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.hub_files import (
    are_parts_of_one,
    require_rows_files,
    require_whole,
)

Splits = Mapping[str, Sequence[str]]
"""Files by split, in order."""

_DEFAULT = "default"
_SHARD = re.compile(r"(?:.*/)?data/([\w.-]+?)-\d{5}-of-\d{5}\.[\w.]+")
_CONVERTED = re.compile(r"([^/]+)/(?:partial-)?([^/]+)/\d{4}\.parquet")
_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_WORD = re.compile(r"[A-Za-z]+")
_GLOB = re.compile(r"\*\*/|\*+|\?|\[[^]/]+\]|[^*?\[]+|\[")
_PATTERN_CHARS, _SHOWN_CHARS = 4096, 80
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class HubPart:
    """What a data set's address, config and split mean at a commit.

    Attributes:
        files: paths to read, in order.
        config: the configuration; empty where the files are all that there is.
        split: the split; likewise.
    """

    files: tuple[str, ...]
    config: str = ""
    split: str = ""


def choose_part(
    address: HubAddress, files: Iterable[str], card: Any, config: str, split: str
) -> HubPart:
    """Returns the files of a configuration and a split.

    Args:
        address: the repository, at a commit.
        files: the paths of all its files.
        card: the metadata of its card, as the hub sends it.
        config: the configuration; empty for the only one, or that which is the default.
        split: the split; empty for the only one.

    Raises:
        AttemptError: kind ``bad-input``; there is no such configuration or split, or several.
    """
    found = require_rows_files(address, files)
    if not config and not split and are_parts_of_one(address, found):
        return HubPart(tuple(found))
    configs, usual = _configs(card, found)
    repository = address.repository
    config = config or usual or _only(configs)
    if not config:
        raise bad_input(f"{repository} has configs {_listed(configs)}; say config:")
    if config not in configs:
        raise bad_input(f"no config {config!r} in {repository}; there is {_listed(configs)}")
    splits = configs[config]
    split = split or _only(splits)
    if not split:
        raise bad_input(f"{repository} {config} has splits {_listed(splits)}; say split:")
    if split not in splits:
        raise bad_input(f"no split {split!r} in {repository} {config}; there is {_listed(splits)}")
    if not splits[split]:
        raise bad_input(
            f"{repository} {config}: its card names no file of rows for the split {split!r}",
            "name one of its files in the address",
        )
    require_whole(address, splits[split])
    return HubPart(tuple(splits[split]), config, split)


def _configs(card: Any, files: Sequence[str]) -> tuple[Mapping[str, Splits], str]:
    """Returns the splits by configuration, and the default configuration if there is one."""
    named = _of_card(card, files)
    usual = next((n for n, (_, is_usual) in named.items() if is_usual), "")
    configs: Mapping[str, Splits] = {name: splits for name, (splits, _) in named.items()}
    if not configs:
        converted = [_CONVERTED.fullmatch(f) for f in files]
        if all(converted):
            configs = _grouped((m[1], m[2], m[0]) for m in converted if m is not None)
        else:
            configs = {_DEFAULT: _by_names(files)}
    return configs, usual or (_DEFAULT if _DEFAULT in configs else "")


def _of_card(card: Any, files: Sequence[str]) -> dict[str, tuple[Splits, bool]]:
    configs = card.get("configs") if isinstance(card, Mapping) else None
    found: dict[str, tuple[Splits, bool]] = {}
    for config in configs if isinstance(configs, list) else ():
        name = config.get("config_name", _DEFAULT) if isinstance(config, Mapping) else None
        if not isinstance(name, str):
            continue
        folder = config.get("data_dir")
        prefix = f"{folder.strip('/')}/" if isinstance(folder, str) and folder.strip("/") else ""
        patterns = config.get("data_files")
        if patterns is None:
            splits = _by_names([f for f in files if f.startswith(prefix)])
        else:
            splits = {
                split: _matching(files, [prefix + g for g in globs])
                for split, globs in _patterns(patterns)
            }
        found[name] = (splits, config.get("default") is True)
    return found


def _patterns(given: Any) -> list[tuple[str, list[str]]]:
    """Returns the patterns of ``data_files`` by split: a text, a list, or one of {split, path}."""
    if isinstance(given, Mapping):
        return [(str(split), _texts(path)) for split, path in given.items()]
    if isinstance(given, list) and all(isinstance(item, Mapping) for item in given):
        by_split: dict[str, list[str]] = {}
        for item in given:
            by_split.setdefault(str(item.get("split", "train")), []).extend(
                _texts(item.get("path"))
            )
        return list(by_split.items())
    return [("train", _texts(given))]


def _texts(given: Any) -> list[str]:
    listed = given if isinstance(given, list) else [given]
    return [g.removeprefix("./") for g in listed if isinstance(g, str)]


def _matching(files: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Returns the files that match, in the order of the patterns, each once."""
    found: dict[str, None] = {}
    for glob in globs:
        if glob in files:
            found[glob] = None
            continue
        try:
            pattern = schema_pattern(_regex(glob[:_PATTERN_CHARS]))
        except PatternError as e:
            raise bad_input(
                f"the card has a pattern that cannot be read: {glob[:_SHOWN_CHARS]!r} ({e})",
                "name one of its files in the address",
            ) from e
        found.update(dict.fromkeys(f for f in files if pattern.search(f)))
    return list(found)


def _regex(glob: str) -> str:
    """Returns a glob as a regular expression of RE2, whose time is linear in the text."""
    parts = []
    for part in _GLOB.findall(glob):
        if part == "**/":
            parts.append("(?:.*/)?")
        elif part == "**":
            parts.append(".*")
        elif part[0] == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        elif part[0] == "[" and len(part) > 1:
            parts.append(part.replace("[!", "[^"))
        else:
            parts.append(re.escape(part))
    return f"^{''.join(parts)}$"


def _by_names(files: Sequence[str]) -> Splits:
    """Returns the splits that the names of files say; all are ``train`` where they say none."""
    shards = [(f, m[1]) for f in files if (m := _SHARD.fullmatch(f)) is not None]
    if shards:
        return _grouped((_DEFAULT, split, f) for f, split in shards)[_DEFAULT]
    for words in (_words_of_name, _words_of_folders):
        named = [(f, split) for f in files if (split := _keyword(words(f)))]
        if named:
            return _grouped((_DEFAULT, split, f) for f, split in named)[_DEFAULT]
    return {"train": list(files)}


def _words_of_name(file: str) -> list[str]:
    return _WORD.findall(PurePosixPath(file).name.lower())


def _words_of_folders(file: str) -> list[str]:
    return [w for part in PurePosixPath(file).parts[:-1] for w in _WORD.findall(part.lower())]


def _keyword(words: Sequence[str]) -> str:
    return next((s for s, known in _KEYWORDS.items() if any(w in known for w in words)), "")


def _grouped(entries: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for config, split, file in entries:
        found.setdefault(config, {}).setdefault(split, []).append(file)
    return found


def _only(named: Mapping[str, Any]) -> str:
    return next(iter(named)) if len(named) == 1 else ""


def _listed(named: Mapping[str, Any]) -> str:
    names = list(named)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
