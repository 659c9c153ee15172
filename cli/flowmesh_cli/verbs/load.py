"""``fmesh load``: sends requests to a served model at a rate, and shows how it answers.

The rate is open-loop: a request is sent when it is due, however many have not been answered. So a
model that is too slow shows as refusals and latency, not as a lower rate.
"""

import asyncio
import contextlib
import json
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.router import endpoint
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.call import ServiceRequest, request_of

_OK = 200
_TIMEOUT_S = 600.0
"""No request of a service takes longer."""
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class LoadReport:
    """What was measured.

    Attributes:
        errors: the first of each outcome but ``ok``.
    """

    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    tokens: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> int:
        """The requests that were answered with an error."""
        return sum(n for outcome, n in self.outcomes.items() if outcome.startswith("http_"))

    def figures(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return {
            "sent": self.sent,
            **{f"{name}": count for name, count in sorted(self.outcomes.items())},
            "refused": self.refused,
            "latency_ms": quantiles_ms(self.latencies_s),
            "ttft_ms": quantiles_ms(self.ttfts_s),
            "tokens_per_s": round(self.tokens / self.elapsed_s, 1) if self.elapsed_s else 0.0,
            "elapsed_s": round(self.elapsed_s, 1),
            "own_cpu_s": round(self.cpu_s, 2),
            "errors": self.errors,
        }


def load(
    model: str,
    *,
    rate: float,
    duration: str,
    text: str,
    max_tokens: int,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Sends requests at a constant rate.

    Raises:
        CliError: the model is not served here, the text is not what it takes, or the rate or the
            duration is malformed.
        Exit: no request succeeded.
    """
    terminal = Terminal(as_json=as_json)
    duration_s = seconds(duration)
    if not math.isfinite(rate * duration_s):
        raise CliError(
            f"{rate} is not a rate: expected requests a second",
            ExitCode.USAGE,
            where="--rate",
            remedy="e.g. 2",
        )
    options = {
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = request_of(endpoint(state_of(state_dir)), model, text, options)
    report = asyncio.run(_Load(request).run(rate, duration_s))
    if as_json:
        terminal.answer(report.figures())
    else:
        _show(terminal, report)
    if not report.outcomes["ok"]:
        terminal.note(f"no request succeeded; the first: {next(iter(report.errors.values()))}")
        raise typer.Exit(ExitCode.REFUSED if report.refused else ExitCode.NO_FABRIC)


def _show(terminal: Terminal, report: LoadReport) -> None:
    figures = report.figures()
    hidden = {"errors"}
    if not figures["ttft_ms"]:  # nothing was streamed: refused, or a service with stages
        hidden |= {"ttft_ms", "tokens_per_s"}
    for name, value in figures.items():
        if name in hidden:
            continue
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) or "-"
            if isinstance(value, dict)
            else value
        )
        terminal.text(f"{name:<14} {shown}")
    if report.outcomes["ok"]:
        for name, error in report.errors.items():
            count = f"{report.outcomes[name]} of {report.sent}"
            terminal.note(f"{name} ({count}), the first: {error}")


def seconds(text: str) -> float:
    """Parses a duration such as ``60s`` or ``5m``.

    Raises:
        CliError: it is not a duration.
    """
    unit = _UNITS_S.get(text[-1:])
    try:
        value = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise CliError(
            f"{text!r} is not a duration",
            ExitCode.USAGE,
            where="--for",
            remedy="e.g. 60s or 5m",
        )
    return value


def quantiles_ms(values_s: list[float]) -> dict[str, float]:
    """Returns quantiles in milliseconds by name; none of no value."""
    ordered = sorted(values_s)
    return {
        f"p{round(100 * q)}": round(1000 * ordered[min(len(ordered) - 1, int(q * len(ordered)))], 1)
        for q in _QUANTILES
        if ordered
    }


class _Load:
    """The requests of one command."""

    def __init__(self, request: ServiceRequest) -> None:
        self._url = request.url
        self._headers = {"Authorization": f"Bearer {request.token}"}
        self._body = json.dumps(request.body).encode()
        self._is_staged = request.is_staged
        self._report = LoadReport()

    async def run(self, rate: float, duration_s: float) -> LoadReport:
        import aiohttp  # noqa: PLC0415 - other commands start without it

        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
        ) as session:
            began_s, cpu_s = time.monotonic(), time.process_time()
            tasks = []
            for number in range(max(1, round(rate * duration_s))):
                await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
                tasks.append(asyncio.create_task(self._one(session)))
            await asyncio.gather(*tasks)
            self._report.sent = len(tasks)
            self._report.elapsed_s = time.monotonic() - began_s
            self._report.cpu_s = time.process_time() - cpu_s
        return self._report

    async def _one(self, session: Any) -> None:
        import aiohttp  # noqa: PLC0415 - as above

        began_s = time.monotonic()
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(self._url, data=self._body, headers=headers) as response:
                if response.status != _OK:
                    outcome, error = f"http_{response.status}", await _refusal(response)
                elif self._is_staged:
                    await response.read()
                    outcome, error = "ok", ""
                else:
                    outcome = await self._read(response, began_s)
                    error = "the answer was cut short"
        except aiohttp.ClientError as e:
            outcome, error = "connection_lost", str(e) or type(e).__name__
        except TimeoutError:
            outcome, error = "timed_out", f"no whole answer within {_TIMEOUT_S:g} s"
        self._report.outcomes[outcome] += 1
        if outcome == "ok":
            self._report.latencies_s.append(time.monotonic() - began_s)
        else:
            self._report.errors.setdefault(outcome, error)

    async def _read(self, response: Any, began_s: float) -> str:
        first, outcome = True, "broken_off"
        async for line in response.content:
            if first:
                self._report.ttfts_s.append(time.monotonic() - began_s)
                first = False
            if line.startswith(b"data: [DONE]"):
                outcome = "ok"
            elif b'"usage":{' in line:
                self._report.tokens += json.loads(line[6:])["usage"]["completion_tokens"]
        return outcome


async def _refusal(response: Any) -> str:
    """Returns the status of a refused request and the router's message."""
    text = await response.text()
    with contextlib.suppress(ValueError, LookupError, TypeError):
        text = json.loads(text)["error"]["message"]
    return f"HTTP {response.status}: {text}"
