"""The systems that ``bench/sharing.py`` compares, and their common work."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fabric import Bench
from generate import BUILTIN, STEP_SEED, TEMPERATURE, prompts
from peer import Peer
from processor import own_s, trees_s

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.machine.commands import Command, LookUp
from flowmesh_core.machine.events import ActionKey, Event, LookedUp

TENANTS = 8
NAMESPACES = tuple(f"team-{n}" for n in range(TENANTS))
POLICY = CachePolicy("research", Sharing.GROUP, group="research", namespaces=NAMESPACES)
MEMORY_MIB = 3072


@dataclass(frozen=True, slots=True)
class Work:
    """The prompts: ``common`` to all tenants, and each one's own."""

    common: list[str]
    own: list[list[str]]

    @staticmethod
    def of(common: int, own: int) -> "Work":
        """Returns prompts: ``common`` for all tenants and ``own`` for each."""
        texts = prompts(common + TENANTS * own)
        rest = texts[common:]
        return Work(texts[:common], [rest[n * own : (n + 1) * own] for n in range(TENANTS)])

    @property
    def asked(self) -> list[list[str]]:
        """All prompts of each tenant."""
        return [self.common + own for own in self.own]


@dataclass(slots=True)
class Way:
    """The measurements of one system.

    Attributes:
        load_s, load_cpu_s: wall and CPU seconds for loading the engines of all tenants.
        passes: wall seconds of each round; ``cpu_s``: CPU seconds; ``made``: generated tokens.
        texts: completion by prompt.
    """

    loads: int
    load_s: float = 0.0
    load_cpu_s: float = 0.0
    passes: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def note(self, seconds: float, cpu_s: float, made: int, texts: Mapping[str, str]) -> None:
        """Records a round.

        Raises:
            RuntimeError: a prompt got another completion than in an earlier round.
        """
        self.passes.append(seconds)
        self.cpu_s.append(cpu_s)
        self.made.append(made)
        differing = [p for p, text in texts.items() if self.texts.setdefault(p, text) != text]
        if differing:
            raise RuntimeError(f"{len(differing)} prompts were answered differently in two rounds")


def _workflow(name: str, tenant: int, work: Work, max_tokens: int) -> dict[str, object]:
    def step(rows: str) -> dict[str, object]:
        return {
            "name": rows,
            "uses": "llm.generate",
            "inputs": {"model": "inputs.base", "rows": f"inputs.{rows}"},
            "with": {
                "prompt": "{{ text }}",
                "dtype": "float32",
                "temperature": TEMPERATURE,
                "maxTokens": max_tokens,
                "seed": STEP_SEED,
            },
            "cache": {"salt": name},
            "resources": {"memory": f"{MEMORY_MIB}Mi"},
        }

    given = {"common": work.common, "own": work.own[tenant]}
    inputs: dict[str, object] = {n: {"rows": [{"text": t} for t in x]} for n, x in given.items()}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": NAMESPACES[tenant]},
        "spec": {
            "inputs": {"base": {"model": BUILTIN.partition(":")[2]}, **inputs},
            "steps": [step(rows) for rows in given],
            "outputs": {rows: f"{rows}.rows" for rows in given},
        },
    }


class Fabric:
    """The fabric with one worker, and a policy that lets the tenants share."""

    def __init__(self, bench: Bench, work: Work, max_tokens: int) -> None:
        self._bench = bench
        self._work = work
        self._max_tokens = max_tokens
        self._rounds = 0
        self.way = Way(loads=1)

    async def load(self, model: Path) -> None:
        """Imports the model, writes it to ``model``, and loads the engine."""
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "import", "namespace": NAMESPACES[0]},
            "spec": {
                "inputs": {"base": {"model": BUILTIN.partition(":")[2]}},
                "steps": [{"name": "nothing", "uses": "test.noop"}],
                "outputs": {"m": "inputs.base"},
            },
        }
        await self._bench.services.policies.put(POLICY)
        uid = await self._run(document)
        await self._bench.directory(uid, "m", model)
        before, began = self._spent(), time.monotonic()
        few = Work(self._work.common[:1], [[x[0]] for x in self._work.own])
        await self._run(_workflow("warm", 0, few, 1))
        self.way.load_s, self.way.load_cpu_s = time.monotonic() - began, self._spent() - before

    async def round(self) -> None:
        """Runs eight workflows at once."""
        self._rounds += 1
        before, began = self._spent(), time.monotonic()
        documents = [
            _workflow(f"round-{self._rounds}", n, self._work, self._max_tokens)
            for n in range(TENANTS)
        ]
        uids = await asyncio.gather(*map(self._run, documents))
        seconds, cpu_s = time.monotonic() - began, self._spent() - before
        texts: dict[str, str] = {}
        for uid in uids:
            for output in ("common", "own"):
                rows = await self._bench.rows(uid, output)
                texts |= {row["text"]: row["completion"] for row in rows}
        self.way.note(seconds, cpu_s, 0, texts)

    async def _run(self, document: dict[str, object]) -> str:
        uid = await self._bench.submit(document)
        status = await self._bench.ended(uid)
        if status.phase != "Succeeded":
            raise RuntimeError(f"{status.name}: {status.message}")
        return uid

    def _spent(self) -> float:
        return own_s() + trees_s(self._bench.pids)

    async def hits(self, count: int) -> list[float]:
        """Returns the seconds from look-up to completion of hits on published results."""
        machine = self._bench.machine
        plain, asked, found = machine.apply, dict[ActionKey, float](), list[float]()

        def apply(event: Event, now_s: float) -> list[Command]:
            commands = plain(event, now_s)
            now = time.perf_counter()
            if isinstance(event, LookedUp) and event.result is not None and event.key in asked:
                found.append(now - asked.pop(event.key))
            asked.update((c.key, now) for c in commands if isinstance(c, LookUp))
            return commands

        step = {"name": "one", "uses": "test.noop", "with": {"value": "hit"}}
        document: dict[str, object] = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "hit"},
            "spec": {"steps": [step]},
        }
        await self._run(document)
        machine.apply = apply  # type: ignore[method-assign]
        for _ in range(count):
            await self._run(document)
        machine.apply = plain  # type: ignore[method-assign]
        return found


class Other:
    """A system in a separate process."""

    def __init__(self, peer: Peer, work: Work, loads: int) -> None:
        """Uses a peer whose engine is loaded; ``loads`` tenants would load one each."""
        self._peer = peer
        self._work = work
        self._rounds = 0
        spent = trees_s([peer.pid])
        self.way = Way(loads, load_s=peer.ready["seconds"] * loads, load_cpu_s=spent * loads)

    async def round(self) -> None:
        """Runs all tenants at once or, where each loads its own engine, one in place of all."""
        self._rounds += 1
        before, asked = trees_s([self._peer.pid]), self._work.asked
        if self.way.loads == 1:
            answer = await self._peer.ask("round", tenants=asked, salt=f"round-{self._rounds}")
            times = 1
        else:
            answer = await self._peer.ask("round", texts=asked[self._rounds % TENANTS])
            times = TENANTS
        cpu_s = trees_s([self._peer.pid]) - before
        made = answer["tokens"] * times
        self.way.note(answer["seconds"] * times, cpu_s * times, made, answer["texts"])
