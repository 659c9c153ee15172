"""Checkpoints of ``llm.openai``: an action's responses, and the tokens of unfinished ones.

An action of some dozen long requests may run for minutes, and its host may end before: what was
generated is not paid for twice. A journal in the attempt's directory gets each response at once and
the new tokens every second; the worker takes it where the host ends. A copy of it is stored every
few seconds, for the worker's own end.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from flowmesh_worker.engine_api import Work

TOKENS_EVERY_S = 1.0
STORE_EVERY_S = 5.0
JOURNAL = "journal.jsonl"
_FORMAT = "flowmesh/answers/1"
_FEW_TOKENS = 256
_encode, _decode = msgspec.json.encode, msgspec.json.decode
_READING_ERRORS = (ValueError, TypeError, KeyError)


@dataclass(slots=True)
class Answers:
    """What an action has so far, by request.

    Attributes:
        responses: of those that ended.
        tokens: that were generated for others.
    """

    responses: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)

    @property
    def done(self) -> float:
        """The requests that ended, and of others a part that grows with their tokens."""
        lengths = map(len, self.tokens.values())
        return len(self.responses) + sum(n / (n + _FEW_TOKENS) for n in lengths)

    def apply(self, entry: Sequence[Any]) -> None:
        """Applies an entry of a journal.

        Raises:
            ValueError: it is not one, or does not follow the others.
        """
        match entry:
            case ["response", str(key), dict(response)]:
                self.responses[key] = response
                self.tokens.pop(key, None)
            case ["tokens", str(key), int(begin), list(new)] if begin == len(
                self.tokens.get(key, ())
            ):
                numbers = msgspec.convert(new, list[int])
                self.tokens.setdefault(key, []).extend(numbers)
            case _:
                raise ValueError("an entry is missing or has another form")


class AnswerCheckpoints:
    """Saves and restores the answers of one action."""

    def __init__(
        self,
        work: Work,
        engine: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begins now.

        Args:
            work: the action.
            engine: names what tokens depend on; those of another engine are not continued.
            clock: seconds that only grow.
            pause: waits for seconds of that clock.
        """
        self._work = work
        self._engine = engine
        self._clock = clock
        self._pause = pause
        self._stored_s = clock()
        self._stored_done = 0.0
        self._number = 0
        self._file: BinaryIO | None = None
        self._answers = Answers()

    def restored(self, keys: Iterable[str]) -> Answers:
        """Returns what the newest checkpoint has of these requests; nothing without one."""
        if self._work.resume is None:
            return Answers()
        found = _read(Path(self._work.resume.path, JOURNAL), self._engine)
        wanted = frozenset(keys)
        responses = {k: r for k, r in found.responses.items() if k in wanted}
        tokens = {k: t for k, t in found.tokens.items() if k in wanted}
        self._append(
            [
                *(["response", key, response] for key, response in responses.items()),
                *(["tokens", key, 0, known] for key, known in tokens.items()),
            ]
        )
        self._stored_done = self._answers.done
        return Answers(responses, tokens)

    async def answered(self, key: str, response: Mapping[str, Any]) -> None:
        """Saves a response."""
        entry = ["response", key, dict(response)]
        self._write(await asyncio.to_thread(_lines, [entry]), [entry])
        await self._store_if_due()

    async def watch(self, unfinished: Callable[[], Mapping[str, Sequence[int]]]) -> None:
        """Saves the tokens of unfinished requests now and then, until it is cancelled.

        Args:
            unfinished: returns by request all tokens that it has so far.
        """
        while True:
            await self._pause(TOKENS_EVERY_S)
            known = self._answers.tokens
            entries = [
                ["tokens", key, len(known.get(key, ())), list(tokens[len(known.get(key, ())) :])]
                for key, tokens in unfinished().items()
                if key not in self._answers.responses and len(tokens) > len(known.get(key, ()))
            ]
            if entries:
                self._append(entries)
                await self._store_if_due()

    async def store(self) -> None:
        """Stores a copy of the journal unless the newest one has as much."""
        if self._answers.done <= self._stored_done:
            return
        self._stored_s, self._stored_done = self._clock(), self._answers.done
        self._number += 1
        folder, done = self._work.out_dir / f"checkpoint-{self._number}", self._answers.done
        await asyncio.to_thread(_copy, self._folder / JOURNAL, folder)
        self._work.checkpoint(folder, done)

    def close(self) -> None:
        """Closes the journal."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _store_if_due(self) -> None:
        if self._clock() - self._stored_s >= STORE_EVERY_S:
            await self.store()

    @property
    def _folder(self) -> Path:
        return self._work.out_dir / "journal"

    def _append(self, entries: Sequence[Sequence[Any]]) -> None:
        if entries:
            self._write(_lines(entries), entries)

    def _write(self, lines: bytes, entries: Sequence[Sequence[Any]]) -> None:
        if self._file is None:
            self._folder.mkdir()
            self._file = open(self._folder / JOURNAL, "ab")  # noqa: SIM115 - until ``close``
            self._file.write(_lines([[_FORMAT, self._engine]]))
        self._file.write(lines)
        self._file.flush()
        for entry in entries:
            self._answers.apply(entry)
        self._work.journal(self._folder, self._answers.done)


def _lines(entries: Sequence[Sequence[Any]]) -> bytes:
    return b"".join(_encode(entry) + b"\n" for entry in entries)


def _read(path: Path, engine: str) -> Answers:
    """Returns what a journal has up to its first entry that is not whole."""
    found = Answers()
    try:
        header, *lines = path.read_bytes().splitlines()
        form, made_by = _decode(header, type=tuple[str, str])
    except (OSError, ValueError):
        return found
    if form != _FORMAT:
        return found
    try:
        for line in lines:
            found.apply(_decode(line, type=list[Any]))
    except _READING_ERRORS:
        pass  # the host ended while it wrote, or another version wrote it
    if made_by != engine:
        found.tokens.clear()
    return found


def _copy(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copyfile(file, folder / JOURNAL)
