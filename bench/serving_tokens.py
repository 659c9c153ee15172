"""Measures streams of a service with a target of time per token and without, in turns.

Router, hub and engine host are processes of their own, as ``fmesh serve`` starts them; one engine
does all. *Beside a batch*: a few streams at once, while an attempt has rows for every free place of
the engine. *Streams alone*: so many at once that their steps take longer than the target. The
target is a multiple of the time per token of a few streams alone, measured at the beginning.

Run it with ``make bench-serving-tokens``.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
from generate import BUILTIN, builtin_model
from pairs import interval, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_stack import CHAT, ServingStack, chat_body, model_start

from flowmesh_core.units import Digest
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.instances.host_process import HostProcess
from flowmesh_worker.ipc.frames import AttemptEnded, Cancel, HostInput, Progressed, RunAttempt

WITH, WITHOUT = "with the target", "without"
_ATTEMPT = "batch-1"
_ROWS, _ROW_TOKENS = 4000, 64
_CALIBRATED_STREAMS = 6
_TOO_MANY = 429
_RETRY_S = 1.0
_DATA = b"data: {"


@dataclass(slots=True)
class Turn:
    """The streams of one measurement.

    Attributes:
        token_s: of each stream, its time after the first event by its tokens after the first.
        first_s: of each, until its first event, without the time in which it was refused.
        refused: requests that were refused; each was sent again.
        seconds: of all.
        tokens: of all streams.
        batch_tokens: of rows of the attempt beside them; without those that were computed again.
    """

    token_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    refused: int = 0
    seconds: float = 0.0
    tokens: int = 0
    batch_tokens: float = 0.0


class Streams:
    """Clients of one stack; each sends its next request when the last answer has ended."""

    def __init__(self, stack: ServingStack, http: aiohttp.ClientSession, tokens: int) -> None:
        self._stack, self._http, self._tokens = stack, http, tokens
        self._numbers = itertools.count()

    async def turn(self, clients: int, each: int) -> Turn:
        """Has so many clients get so many answers each."""
        turn, began_s = Turn(), time.perf_counter()
        await asyncio.gather(*(self._client(turn, each) for _ in range(clients)))
        turn.seconds = time.perf_counter() - began_s
        return turn

    async def _client(self, turn: Turn, answers: int) -> None:
        for _ in range(answers):
            text = f"Story number {next(self._numbers)}. Write a long story about a robot."
            usage = {"stream": True, "stream_options": {"include_usage": True}}
            body = chat_body(text, max_tokens=self._tokens, temperature=0, **usage)
            while not await self._stream(turn, body):
                turn.refused += 1
                await asyncio.sleep(_RETRY_S)

    async def _stream(self, turn: Turn, body: str) -> bool:
        headers = {**self._stack.headers(), "Content-Type": "application/json"}
        sent_s, events_s, tokens = time.perf_counter(), [], 0
        async with self._http.post(self._stack.url + CHAT, data=body, headers=headers) as response:
            if response.status == _TOO_MANY:
                return False
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(_DATA):
                    events_s.append(time.perf_counter())
                    usage = msgspec.json.decode(line[len(_DATA) - 1 :]).get("usage")
                    tokens = usage["completion_tokens"] if usage else tokens
        turn.first_s.append(events_s[0] - sent_s)
        turn.token_s.append((events_s[-1] - events_s[0]) / (tokens - 1))
        turn.tokens += tokens
        return True


class Batch:
    """An attempt that has rows for all free places, for as long as it is measured."""

    def __init__(self, stack: ServingStack, host: HostProcess, scratch: Path) -> None:
        self._stack, self._host, self._scratch = stack, host, scratch
        self._done = 0.0

    def begin(self) -> None:
        """Sends the attempt."""
        rows = [{"p": f"Question {n}: how does a robot paint a house?"} for n in range(_ROWS)]
        manifest, blobs = as_single_chunk(rows)
        given = HostInput("dataset", Digest("1" * 64), manifest=manifest, contents=blobs)
        params = {"prompt": "{{ p }}", "maxTokens": _ROW_TOKENS, "ignoreEos": True, "seed": 1}
        run = RunAttempt(
            *(_ATTEMPT, Digest("2" * 64), {**params, "temperature": 0.8}, {}, {"rows": given}),
            row_output="rows",
            cache_salt="batch",
            priority=0,
            secrets={},
        )
        self._host.send(run)

    def tokens(self) -> float:
        """Returns the tokens of rows since the last time.

        Raises:
            RuntimeError: the attempt has ended.
        """
        before = self._done
        while not self._stack.messages.empty():
            message = self._stack.messages.get_nowait()
            if isinstance(message, AttemptEnded):
                sys.exit(f"the batch has ended: {message.failure}; give it more rows")
            if isinstance(message, Progressed):
                self._done = message.done
        return self._done - before

    async def end(self) -> None:
        """Cancels the attempt."""
        self._host.send(Cancel(_ATTEMPT))
        while not isinstance(await self._stack.messages.get(), AttemptEnded):
            pass


Found = dict[tuple[str, str], list[Turn]]


async def measure(arguments: argparse.Namespace, folder: Path) -> tuple[float, Found]:
    """Returns the target, and the turns by load and way."""
    found: Found = defaultdict(list)
    start = model_start(folder / "host", builtin_model(folder))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        contextlib.AsyncExitStack() as opened,
    ):
        stack = ServingStack(folder / "stack")
        router = await stack.start_router()
        opened.callback(router.terminate)
        host = await opened.enter_async_context(stack.host(start))
        streams, batch = Streams(stack, http, arguments.tokens), Batch(stack, host, folder)
        await streams.turn(2, 1)  # warms
        few = await streams.turn(_CALIBRATED_STREAMS, 2)
        target_s = arguments.times * statistics.median(few.token_s)
        print(f"target {target_s * 1e3:.0f} ms", file=sys.stderr)
        loads = [("beside a batch", arguments.beside), ("streams alone", arguments.alone)]
        for load, clients in loads:
            if load != "streams alone":
                batch.begin()
            for number in range(-1, arguments.turns):  # the first is to learn the steps
                for way in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                    stack.use_targets(tpot_s=target_s if way == WITH else 0.0)
                    await streams.turn(clients, 1)  # until the sequences of before have ended
                    batch.tokens()
                    turn = await streams.turn(clients, arguments.each)
                    turn.batch_tokens = batch.tokens()
                    print(_line(load, way, turn), file=sys.stderr, flush=True)
                    if number >= 0:
                        found[load, way].append(turn)
            if load != "streams alone":
                await batch.end()
    return target_s, found


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _line(load: str, way: str, turn: Turn) -> str:
    return (
        f"{load}, {way}: p95 {_percentile(turn.token_s, 0.95) * 1e3:.0f} ms a token, first event"
        f" p50 {statistics.median(turn.first_s) * 1e3:.0f} ms, {turn.tokens / turn.seconds:.1f}"
        f" tokens/s of streams and {turn.batch_tokens / turn.seconds:.1f} of rows,"
        f" {turn.refused} refused, load average {os.getloadavg()[0]:.1f}"
    )


def table(target_s: float, found: Found) -> Table:
    """Returns times per token, times to the first event and rates, by load and way."""
    columns = [
        *("load", "target", "time per token, p50 ms", "p95 ms", "p95 beside the target"),
        *("streams later than the target", "first event, p50 ms", "streams, tokens/s"),
        *("rows, tokens/s", "refused and sent again"),
    ]
    rows = []
    for (load, way), turns in found.items():
        token_s = [s for turn in turns for s in turn.token_s]
        p95_s = [_percentile(turn.token_s, 0.95) for turn in turns]
        first_s = [s for turn in turns for s in turn.first_s]
        rates = [turn.tokens / turn.seconds for turn in turns]
        batch = [turn.batch_tokens / turn.seconds for turn in turns]
        late = sum(s > target_s for s in token_s)
        rows.append(
            [
                load,
                way,
                f"{statistics.median(token_s) * 1e3:.0f}",
                f"{statistics.median(p95_s) * 1e3:.0f}",
                interval(median_ratio(p95_s, [target_s] * len(p95_s)), ".2f"),
                f"{late} of {len(token_s)}",
                f"{statistics.median(first_s) * 1e3:.0f}",
                f"{statistics.median(rates):.1f}",
                f"{statistics.median(batch):.1f}",
                str(sum(turn.refused for turn in turns)),
            ]
        )
    title = (
        f"{BUILTIN.partition(':')[2]} in float32, a target of {target_s * 1e3:.0f} ms per token:"
        f" medians of {len(next(iter(found.values())))} turns, 95% intervals"
    )
    return Table(title, columns, rows)


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--each", type=int, default=1, help="answers of a client in a turn")
    parser.add_argument("--beside", type=int, default=4, help="clients beside the batch")
    parser.add_argument("--alone", type=int, default=32, help="clients without a batch")
    parser.add_argument("--times", type=float, default=2.0, help="of six streams is the target")
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-tokens", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        target_s, found = asyncio.run(measure(arguments, Path(folder)))
    result.tables.append(table(target_s, found))
    result.figures = {
        f"{load}, {way}": {
            "token_s": [turn.token_s for turn in turns],
            "first_s": [turn.first_s for turn in turns],
        }
        for (load, way), turns in found.items()
    }
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
