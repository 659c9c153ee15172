"""Turns text into documents that know the line and column of every value.

Pure: the caller reads the file. All problems of the text are collected, as far as the parser gets;
a refused value stays in the document as a string, so that the rest can be checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from flowmesh_api.v1.problems import Problem
from flowmesh_documents.paths import Key, path_keys, path_text
from flowmesh_documents.scalars import RefusedScalarError, read_plain

MAX_TEXT_BYTES = 64 * 1024 * 1024
MAX_NESTING = 64
MAX_VALUES = 4_000_000
MAX_CHARACTERS = 128 * 1024 * 1024
"""Of all texts with aliases filled in: what the API accepts as a body."""
_REMEDIES = {
    "'\\t'": "use spaces in place of the tab",
    "that cannot start any token": "quote the text that begins with it",
    "<block end>": "indent the line as those beside it",
    "mapping values are not allowed": "indent the line as those beside it, write a space after"
    " each colon, and quote a text that has ': '",
}
"""By a part of the parser's message, what to do; the first counts."""
_STRING_TAG = "tag:yaml.org,2002:str"


@dataclass(slots=True)
class SourcePosition:
    """The positions of a value and its key, from 1, and those of everything inside it.

    ``size`` and ``characters`` are the numbers of values and of characters of texts inside it.
    """

    line: int
    column: int
    key_line: int = 0
    key_column: int = 0
    children: dict[Key, "SourcePosition"] = field(default_factory=dict)
    size: int = 1
    characters: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file.

    Attributes:
        value: its content, as JSON-like Python values.
        mark: the position of everything in it.
        problems: of its text.
    """

    value: Any
    mark: SourcePosition
    problems: tuple[Problem, ...] = ()

    def locate(self, problem: Problem) -> Problem:
        """Returns the problem with line and column of its field, or of the nearest outer one."""
        if problem.line:
            return problem
        line, column = self.position(path_keys(problem.path))
        return replace(problem, line=line, column=column)

    def position(self, keys: tuple[Key, ...]) -> tuple[int, int]:
        """Returns line and column of a field (its key's, for a mapping's entry), both from 1."""
        mark = self.mark
        for key in keys:
            inner = mark.children.get(key)
            if inner is None:
                break
            mark = inner
        return (mark.key_line, mark.key_column) if mark.key_line else (mark.line, mark.column)


def parse_documents(
    text: str, *, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[list[Document], list[Problem]]:
    """Reads every document of a file; empty ones are left out.

    Args:
        text: the file's content.
        max_bytes: longer files are refused unread.

    Returns:
        The documents that could be read, and all problems of the text, theirs included.
    """
    if len(text) > max_bytes or len(text.encode(errors="replace")) > max_bytes:
        return [], [Problem("", f"the file is larger than {max_bytes} bytes; split it", 1, 1)]
    reader = _Reader(text)
    return list(reader.documents()), reader.problems


class _StopReadingError(Exception):
    """Raised inside the reader where it cannot go on; the problem is recorded."""


class _Reader:
    """Builds documents from the parser's events."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        self._events: Iterator[Any] = iter(YAML(typ="safe", pure=True).parse(text))
        self._anchors: dict[str, tuple[Any, SourcePosition]] = {}
        self._open: set[str] = set()
        self._values = 0
        self._characters = 0

    def documents(self) -> Iterator[Document]:
        try:
            for event in self._events:
                if type(event).__name__ == "DocumentStartEvent":
                    self._anchors.clear()
                    before = len(self.problems)
                    value, mark = self._value(next(self._events), ())
                    if value is not None:
                        yield Document(value, mark, tuple(self.problems[before:]))
        except _StopReadingError:
            return
        except MarkedYAMLError as e:
            at = e.problem_mark or e.context_mark
            context = f" ({e.context})" if e.context else ""
            remedy = next((f"; {r}" for said, r in _REMEDIES.items() if said in str(e.problem)), "")
            self._report((), f"not YAML: {e.problem}{context}{remedy}", at)
        except (YAMLError, UnicodeError, ValueError) as e:
            self._report((), f"not YAML: {str(e).splitlines()[0]}", None)

    def _value(self, event: Any, keys: tuple[Key, ...]) -> tuple[Any, SourcePosition]:
        self._values += 1
        kind = type(event).__name__
        self._refuse_growth(event, keys)
        if kind == "AliasEvent":
            return self._alias(event, keys)
        mark = SourcePosition(event.start_mark.line + 1, event.start_mark.column + 1)
        if event.tag is not None and event.tag != _STRING_TAG:
            self._report(keys, f"tag {event.tag} is not supported; leave it out", event.start_mark)
        if event.anchor is not None:
            self._open.add(event.anchor)
        value: Any
        if kind == "ScalarEvent":
            value = self._scalar(event, keys)
            mark.characters = len(event.value)
            self._characters += mark.characters
        elif kind == "SequenceStartEvent":
            value = self._sequence(mark, keys)
        else:
            value = self._mapping(mark, keys)
        if event.anchor is not None:
            self._open.discard(event.anchor)
            self._anchors[event.anchor] = (value, mark)
        return value, mark

    def _refuse_growth(self, event: Any, keys: tuple[Key, ...]) -> None:
        if len(keys) > MAX_NESTING:
            what = "is nested too deeply"
        elif self._values > MAX_VALUES:
            what = f"has too many values: more than {MAX_VALUES:,}, aliases written out"
        elif self._characters > MAX_CHARACTERS:
            what = f"has too many characters: more than {MAX_CHARACTERS:,}, aliases written out"
        else:
            return
        self._report(keys, f"the file {what}", event.start_mark)
        raise _StopReadingError

    def _alias(self, event: Any, keys: tuple[Key, ...]) -> tuple[Any, SourcePosition]:
        here = SourcePosition(event.start_mark.line + 1, event.start_mark.column + 1)
        if event.anchor in self._open or event.anchor not in self._anchors:
            why = "contains itself" if event.anchor in self._open else "is not defined before"
            self._report(keys, f"alias *{event.anchor} {why}", event.start_mark)
            return None, here
        value, mark = self._anchors[event.anchor]
        self._values += mark.size
        self._characters += mark.characters
        return value, replace(mark, line=here.line, column=here.column)

    def _scalar(self, event: Any, keys: tuple[Key, ...]) -> Any:
        if event.style == '"':
            return self._unicode(event, keys)
        if event.style is not None or event.tag is not None:
            return event.value
        try:
            return read_plain(event.value)
        except RefusedScalarError as e:
            self._report(keys, str(e), event.start_mark)
            return event.value

    def _unicode(self, event: Any, keys: tuple[Key, ...]) -> str:
        """Returns a text whose escapes may be halves of characters, two by two as in JSON."""
        text: str = event.value
        if text.isascii():
            return text
        units = text.encode("utf-16-le", "surrogatepass")
        whole = units.decode("utf-16-le", "replace")
        if whole.encode("utf-16-le") != units:
            what = "one half of a surrogate pair, such as \\ud800, without the other"
            self._report(keys, f"the text has {what}; remove it", event.start_mark)
        return whole

    def _sequence(self, mark: SourcePosition, keys: tuple[Key, ...]) -> list[Any]:
        out: list[Any] = []
        for event in self._events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            value, inner = self._value(event, (*keys, len(out)))
            mark.children[len(out)] = inner
            mark.size += inner.size
            mark.characters += inner.characters
            out.append(value)
        return out

    def _mapping(self, mark: SourcePosition, keys: tuple[Key, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for event in self._events:
            if type(event).__name__ == "MappingEndEvent":
                break
            key = self._key(event, keys)
            value, inner = self._value(next(self._events), (*keys, key))
            if key in out:
                first = mark.children[key].key_line
                self._report(
                    (*keys, key), f"written twice, first on line {first}", event.start_mark
                )
                continue
            inner.key_line, inner.key_column = (
                event.start_mark.line + 1,
                event.start_mark.column + 1,
            )
            mark.children[key] = inner
            mark.size += inner.size
            mark.characters += inner.characters + len(key)
            out[key] = value
        return out

    def _key(self, event: Any, keys: tuple[Key, ...]) -> str:
        value, _ = self._value(event, keys)
        if isinstance(value, str):
            return value
        shown = getattr(event, "value", None)
        if isinstance(shown, str):
            self._report(keys, f'a key must be a string; write "{shown}"', event.start_mark)
            return shown
        message = "a key must be a string, not a list or mapping; quote a text that has {{ or {"
        self._report(keys, message, event.start_mark)
        return ""

    def _report(self, keys: tuple[Key, ...], message: str, mark: Any) -> None:
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        self.problems.append(Problem(path_text(keys), message, line, column))
