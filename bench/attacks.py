"""Checks that the control plane keeps answering while a tenant or a worker attacks it.

The control plane runs in its own process. During each attack another process polls its health
endpoint and submits workflows of another tenant, and the growth of its memory is measured. The
attacks are those that once stopped or starved it: conditions and templates that never end or fill
the memory, malformed messages of a worker, uploads that decode to many times their size, the end of
an attempt that was never assigned to the reporting worker, and requests at 250 times the rate of a
quota. Times are wall time on this machine, so the page names its load.

Run it with ``make bench-attacks``.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import secrets
import select
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import ClientError, ClientSession, WSMsgType, WSServerHandshakeError
from graphs import quantile
from results import Result, Table

from flowmesh_api.v1.quotas import Quota
from flowmesh_control.auth.users import StaticUsers
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.settings import ControlSettings
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.frames import MESSAGE_BYTES_MAX, VALUES_MAX
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    AttemptEnd,
    FailureReport,
    Hello,
    Sync,
    WorkerShape,
    encode,
)
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.spec.secrets import SecretValue
from flowmesh_store.store import open_store

TOKEN = "attacks"
HEALTH_MS = 250.0
"""Limit for the p99 of the health endpoint's responses during every attack."""
MEMORY_MIB = 128
"""Limit for the growth of the control plane's memory."""
ASK_EVERY_S = 0.02
SUBMIT_EVERY = 5
"""Of so many polls of the health endpoint one is followed by a submission."""
LONGEST_S = 120.0
"""An attack that has not ended by then has succeeded."""
LIMITED = Quota(name="limited", namespaces=("team-c",))
FLOOD, FLOOD_S = 250, 20.0
"""A flood's rate, as a multiple of the quota's, and its length, which is that of its control."""
FLOODED = "/v1/quota?namespace=team-c"
FLOOD_P99 = 2.0
"""Limit for the p99 of health and of submissions during the flood, as a multiple of idle ones."""
TEN = "[0,1,2,3,4,5,6,7,8,9]"


class NoSecrets:
    """No step of this benchmark names a secret."""

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """Refuses."""
        raise FlowMeshError(f"namespace {namespace} has no secrets {names}")


async def serve(root: Path) -> None:
    """Runs the control plane until it is killed."""
    control = ControlPlane(
        open_store(str(root / "store")),
        ControlSettings(sandboxed_evaluators=True),
        catalog=load_catalog(),
        key_ring=KeyRing.of(secrets.token_bytes(32)),
        users=StaticUsers(TOKEN),
        tokens=StaticWorkerTokens({"trusted": "trusted", "hostile": "hostile"}),
        secrets=NoSecrets(),
    )
    await control.start()
    await control.services.quotas.replace_all([LIMITED], {})
    print(control.url, flush=True)
    await control.wait()


def probe(url: str) -> None:
    """Polls the health endpoint, and submits a workflow for another tenant now and then.

    Ends when a line arrives on standard input; prints the times of both.
    """
    times_s: dict[str, list[float]] = {"health": [], "submit": []}
    _timed(_submission(url))  # starts the process that compiles
    print("asking", flush=True)
    number = 0
    while not select.select([sys.stdin], [], [], ASK_EVERY_S)[0]:
        number += 1
        times_s["health"].append(_timed(urllib.request.Request(f"{url}/healthz")))
        if number % SUBMIT_EVERY == 0:
            times_s["submit"].append(_timed(_submission(url)))
    print(json.dumps(times_s))


def _submission(url: str) -> urllib.request.Request:
    name = f"probe-{secrets.token_hex(6)}"
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": "team-d"},
        "spec": {"steps": [{"name": "a", "uses": "test.noop", "with": {"value": name}}]},
    }
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    return urllib.request.Request(
        f"{url}/v1/runs", json.dumps({"document": document}).encode(), headers
    )


def _timed(request: urllib.request.Request) -> float:
    """Returns the seconds of a request; infinity where it fails."""
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            response.read()
    except OSError:
        return float("inf")
    return time.monotonic() - began


class Attacker:
    """Sends what a tenant and a worker with valid tokens can send."""

    def __init__(self, url: str, http: ClientSession) -> None:
        self.url = url
        self.http = http
        self.answers: list[str] = []

    async def post(self, path: str, data: Any) -> dict[str, Any]:
        """Sends a body and notes the status."""
        async with self.http.post(
            self.url + path, data=data, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            self.answers.append(str(response.status))
            body = await response.read()
            return dict(msgspec.json.decode(body)) if response.ok else {}

    async def run(self, name: str, *steps: dict[str, Any], **spec: Any) -> str:
        """Submits a workflow; returns its uid, or an empty text if it is refused."""
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": name, "namespace": "team-b"},
            "spec": {"steps": list(steps), **spec},
        }
        accepted = await self.post("/v1/runs", msgspec.json.encode({"document": document}))
        return str(accepted.get("uid", ""))

    async def status(self, uid: str) -> dict[str, Any]:
        """Returns a run's status."""
        async with self.http.get(
            f"{self.url}/v1/runs/{uid}", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            return dict(msgspec.json.decode(await response.read()))

    async def settled(self, uid: str) -> None:
        """Waits a while for a run to end, and cancels it."""
        for _ in range(50):
            if (await self.status(uid))["phase"] not in ("Running", "Suspended"):
                return
            await asyncio.sleep(0.1)
        await self.post(f"/v1/runs/{uid}/cancel", b"{}")

    async def worker(self, *messages: Sync | bytes) -> int:
        """Joins as a worker of the hostile pool; returns how many messages were accepted."""
        gateway = self.url.replace("http", "ws", 1) + "/worker"
        headers = {"Authorization": "Bearer hostile"}
        async with self.http.ws_connect(gateway, headers=headers) as socket:
            await socket.send_bytes(encode(_hello()))
            await socket.receive()
            for number, message in enumerate(messages):
                if socket.closed:
                    return number
                data = message if isinstance(message, bytes) else encode(message)
                await socket.send_bytes(data)
                try:
                    reply = await asyncio.wait_for(socket.receive(), 0.05)
                except TimeoutError:
                    continue
                if reply.type is not WSMsgType.BINARY:
                    return number + 1
        return len(messages)


def _hello() -> Hello:
    shape = WorkerShape(
        name=f"hostile-{secrets.token_hex(4)}",
        pool="hostile",
        device_class="cpu",
        device_memory_mib=1024,
        host_memory_mib=1024,
        cpus=1,
        price_nanousd_per_hour=0,
        engines={},
    )
    return Hello(PROTOCOL_VERSION, 0, secrets.token_hex(8), time.time(), shape)


async def conditions(attacker: Attacker) -> None:
    """Submits conditions with nested macros and growing strings and lists."""
    names = "abcdefghij"
    nested = "true"
    for name in reversed(names[:8]):
        nested = f"{TEN}.all({name},{nested})"
    doubling = "'aaaaaaaaaa'"
    for name in names[:3]:
        doubling = f"[{doubling}].map({name},{name}+{name}+{name})[0]"
    texts = [
        nested,
        f"{TEN}.all(a,{TEN}.all(b,{TEN}.all(c,[0,0,0,0,0,0,0,0,0,0,0,0].size()<a+b+c+99)))",
        f"{doubling}.size()>0",
        f"({'+'.join([TEN] * 300)}).size()>0",
        "(" * 800 + "true" + ")" * 800,
    ]
    for number, text in enumerate(texts):
        step = {"name": "a", "uses": "test.noop", "when": text}
        uid = await attacker.run(f"condition-{number}", step)
        if uid:
            await attacker.settled(uid)


async def templates(attacker: Attacker) -> None:
    """Submits templates whose constants a compiler would fold into gigabytes."""
    texts = [
        "{{ 'a'" + "|replace('a','aaaaaaaaaa')" * 12 + " }}",
        "{{ 'a'|slice(9000000000)|list }}",
        "{{ 'a'|center(900000)" + "|center(900000)" * 50 + " }}",
        "{{ ('a'~'a')" + "|list|join('aaaaaaaa')" * 12 + " }}",
        "{{ " + "[" * 500 + "]" * 500 + " }}",
    ]
    rows = {"rows": [{"text": "x"}]}
    for number, text in enumerate(texts):
        step = {
            "name": "a",
            "uses": "llm.generate",
            "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
            "with": {"prompt": text},
        }
        inputs = {"base": {"model": "smollm2-135m-instruct"}, "rows": rows}
        uid = await attacker.run(f"template-{number}", step, inputs=inputs)
        if uid:
            await attacker.post(f"/v1/runs/{uid}/cancel", b"{}")


async def messages(attacker: Attacker) -> None:
    """Sends malformed attempt ids, unknown kinds of failure, NaN, and random bytes."""
    digest = "a" * 64
    failure = FailureReport("no-such-kind", "?")
    ends = [
        AttemptEnd("", digest),
        AttemptEnd("a/b/c/d/e", digest),
        AttemptEnd("x" * 100_000, digest),
        AttemptEnd(f"ns-team-a/{digest}/1-1", digest, failure=failure),
        AttemptEnd(f"ns-team-a/{digest}/1-1", "no digest", started_s=float("nan")),
    ]
    for end in ends:
        count = await attacker.worker(*(Sync(seq=n + 1, ended=(end,)) for n in range(20)))
        attacker.answers.append(f"closed after {count}" if count < 20 else "stays")
    garbage = [secrets.token_bytes(1000) for _ in range(5)]
    await attacker.worker(*garbage)


async def large_messages(attacker: Attacker) -> None:
    """Sends messages at the limits of size and of values, beyond them, and without a token."""
    figures = {f"{n:x}": 0 for n in range(VALUES_MAX // 2 - 10)}
    log = AttemptEnd(f"ns-team-a/{'a' * 64}/1-1", "a" * 64, log="x" * (MESSAGE_BYTES_MAX - 2000))
    worst: list[bytes | Sync] = [
        Sync(1, metrics=dict.fromkeys(figures, 0.0)),
        Sync(1, ended=(log,)),
        bytes(MESSAGE_BYTES_MAX + 1),
        bytes(64 << 20),
    ]
    for message in worst:
        with contextlib.suppress(ConnectionError):
            await attacker.worker(message)
    gateway = attacker.url.replace("http", "ws", 1) + "/worker"
    try:
        async with attacker.http.ws_connect(gateway):
            attacker.answers.append("upgraded without a token")
    except WSServerHandshakeError as e:
        attacker.answers.append(str(e.status))


async def uploads(attacker: Attacker) -> None:
    """Uploads small files that decode to gigabytes, large valid files, and deeply nested ones."""
    indices = pa.array([0] * 4_000_000, pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1000]))
    bomb = io.BytesIO()
    pq.write_table(pa.table({"a": column}), bomb, store_schema=False, compression="zstd")
    lines = b"id,text\n" + b"".join(b"%d,some words in a row\n" % n for n in range(2_000_000))
    files = {
        "bomb.parquet": bomb.getvalue(),
        "honest.csv": lines,
        "short.jsonl": b'{"a":1}\n' * 200_000,
        "deep.json": b"[" * 100_000 + b"]" * 100_000,
    }
    for name, data in files.items():
        await attacker.post(f"/v1/datasets?namespace=team-b&name={name}", data)
    await attacker.post("/v1/runs", b'{"document":' + b"[" * 100_000)


async def forged_end(attacker: Attacker) -> None:
    """Reports the end of another pool's attempt, which was never assigned to the worker."""
    step = {"name": "a", "uses": "test.noop", "resources": {"labels": {"no": "pool"}}}
    uid = await attacker.run("victim", step)
    for _ in range(100):
        story = await _why(attacker, uid)
        if story:
            break
        await asyncio.sleep(0.1)
    part = story[0]
    ids = [f"{part['scope']}/{part['action_id']}/{epoch}-{n}" for epoch in (1, 2) for n in (1, 2)]
    ends = tuple(AttemptEnd(i, part["action_id"]) for i in ids)
    await attacker.worker(*(Sync(seq=n + 1, ended=ends) for n in range(3)))
    await asyncio.sleep(1.0)
    phase = (await attacker.status(uid))["phase"]
    attacker.answers.append(f"the run is {phase}")
    if phase != "Running":
        raise SystemExit(f"a forged end changed a run: {phase}")
    await attacker.post(f"/v1/runs/{uid}/cancel", b"{}")


def flood(connections: int) -> Callable[[Attacker], Awaitable[None]]:
    """Returns an attack: requests at many times the rate that the quota of a namespace allows."""

    async def send(attacker: Attacker) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(str(Path(__file__).with_name("flood.py")), attacker.url, FLOODED, TOKEN),
            *("--connections", str(connections)),
            *("--per-s", str(FLOOD * LIMITED.requests_per_second)),
            *("--seconds", str(FLOOD_S)),
            stdout=asyncio.subprocess.PIPE,
        )
        answers, _ = await process.communicate()
        for status, count in json.loads(answers).items():
            attacker.answers.extend([status] * count)

    return send


async def _why(attacker: Attacker, uid: str) -> list[dict[str, Any]]:
    async with attacker.http.get(
        f"{attacker.url}/v1/runs/{uid}/why?step=a", headers={"Authorization": f"Bearer {TOKEN}"}
    ) as response:
        return list(msgspec.json.decode(await response.read())["parts"])


ATTACKS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "idle (the control)": lambda _: asyncio.sleep(FLOOD_S),
    "conditions": conditions,
    "templates": templates,
    "malformed messages of a worker": messages,
    "large messages of a worker": large_messages,
    "uploads": uploads,
    "a forged end": forged_end,
    "requests at 250 times their quota, 20 connections": flood(20),
    "the same, 1,000 connections": flood(1000),
}
FLOODS = 2
"""The last attacks are floods."""


async def measure(attacker: Attacker, pid: int, url: str) -> list[dict[str, Any]]:
    """Runs every attack while the health endpoint is polled; returns a row for each."""
    found = []
    for name, attack in ATTACKS.items():
        prober = await _started("--probe", url)
        assert prober.stdout is not None
        await prober.stdout.readline()
        before = _peak_from_now(pid)
        attacker.answers.clear()
        began, spent = time.monotonic(), _processor_s(pid)
        try:
            async with asyncio.timeout(LONGEST_S):
                await attack(attacker)
        except (TimeoutError, ClientError) as error:
            attacker.answers.append(f"{type(error).__name__} after {LONGEST_S:g} s at most")
        seconds = time.monotonic() - began
        answers, _ = await prober.communicate(b"\n")
        times_s = json.loads(answers)
        times_ms = [s * 1000 for s in times_s["health"]]
        submit_ms = [s * 1000 for s in times_s["submit"]] or [0.0]
        found.append(
            {
                "attack": name,
                "answers": _counted(attacker.answers),
                "seconds": seconds,
                "processor_s": _processor_s(pid) - spent,
                "asked": len(times_ms),
                "p50_ms": quantile(times_ms, 0.5),
                "p99_ms": quantile(times_ms, 0.99),
                "worst_ms": max(times_ms),
                "submit_p50_ms": quantile(submit_ms, 0.5),
                "submit_p99_ms": quantile(submit_ms, 0.99),
                "grew_mib": max(0, _kib(pid, "VmHWM") - before) / 1024,
            }
        )
        print(found[-1], file=sys.stderr, flush=True)
    return found


async def _started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


def _peak_from_now(pid: int) -> int:
    """Resets the kernel's peak of a process's memory; returns its current size in KiB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _kib(pid, "VmRSS")


def _counted(answers: list[str]) -> str:
    return ", ".join(f"{answers.count(a)} x {a}" for a in dict.fromkeys(answers)) or "-"


def _kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(f"{name}:"))


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(found: list[dict[str, Any]], result: Result) -> None:
    """Writes the table with the limits."""
    rows = [
        [
            f["attack"],
            f["answers"],
            f"{f['seconds']:.1f}",
            f"{f['processor_s']:.1f}",
            f"{f['p50_ms']:.1f}",
            f"{f['p99_ms']:.0f}",
            f"{f['worst_ms']:.0f}",
            f"{f['submit_p50_ms']:.0f}",
            f"{f['submit_p99_ms']:.0f}",
            f"{f['grew_mib']:.0f}",
        ]
        for f in found
    ]
    columns = ["attack", "answers", "s", "processor s", "health p50, ms", "p99", "worst"]
    columns += ["another's submission p50, ms", "p99", "MiB"]
    over = [f["attack"] for f in found if f["p99_ms"] > HEALTH_MS or f["grew_mib"] > MEMORY_MIB]
    result.tables = [
        Table(
            "The control plane while one tenant, or one worker of another pool, attacks it",
            columns,
            rows,
            [
                f"Bounds: 99% of health within {HEALTH_MS:g} ms, growth of at most "
                f"{MEMORY_MIB} MiB (the peak of the control plane's own process); "
                + (f"**not held by: {', '.join(over)}**." if over else "all held."),
                "The forged end changed nothing: its run was still waiting for a worker.",
                "During the floods of requests the p99 of health is "
                f"{_flood_ratio(found, 'p99_ms'):.1f} times, and that of another tenant's "
                f"submissions {_flood_ratio(found, 'submit_p99_ms'):.1f} times that of the idle "
                f"control plane; bound: {FLOOD_P99:g}.",
            ],
        )
    ]
    result.figures = {
        "attacks": found,
        "flood_p99_ratio": _flood_ratio(found, "p99_ms"),
        "flood_submit_p99_ratio": _flood_ratio(found, "submit_p99_ms"),
    }


def _flood_ratio(found: list[dict[str, Any]], figure: str) -> float:
    """Returns the largest figure during a flood over that while idle."""
    return float(max(f[figure] for f in found[-FLOODS:]) / found[0][figure])


async def run(arguments: argparse.Namespace) -> None:
    """Starts the control plane, runs all attacks, and ends it."""
    result = Result("attacks")
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        control = await _started("--serve", folder)
        try:
            assert control.stdout is not None
            url = (await control.stdout.readline()).decode().strip()
            if not url:
                raise SystemExit("the control plane did not start")
            async with ClientSession() as http:
                found = await measure(Attacker(url, http), control.pid, url)
        finally:
            with contextlib.suppress(ProcessLookupError):
                control.kill()
            await control.wait()
    show(found, result)
    result.save(keep=not arguments.draft)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    given.add_argument("--serve", metavar="DIR", help=argparse.SUPPRESS)
    given.add_argument("--probe", metavar="URL", help=argparse.SUPPRESS)
    return given


if __name__ == "__main__":
    chosen = parser().parse_args()
    if chosen.serve:
        asyncio.run(serve(Path(chosen.serve)))
    elif chosen.probe:
        probe(chosen.probe)
    else:
        asyncio.run(run(chosen))
