"""A tenant of a real fabric: it runs or uploads what another tenant has, or what no tenant has.

Called by ``side_channels.py``. The control plane runs in this process, a worker in its own; the
observer sees what the API answers, and when. Both kinds of sample are taken in one random order, so
that a slow moment of the machine affects both.
"""

import asyncio
import io
import json
import secrets
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec
from aiohttp import ClientSession
from fabric import TOKEN, Bench

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy

OWNER, OBSERVER = "team-a", "team-b"
KNOWN, FRESH = "known", "fresh"
GROUP = CachePolicy("friends", Sharing.GROUP, group="friends", namespaces=(OWNER, OBSERVER))
TEXT_BYTES = 2_000
WEIGHTS_BYTES = 9 << 20
"""More than is put in one request: the store first asks whether the scope has it."""
BATCH = 10
"""Pairs whose known halves the owner makes at once, so that it does not take longer than all
samples."""
T = TypeVar("T")
Features = dict[str, float]
Samples = dict[str, list[Features]]


class LaptopObserver:
    """Asks a fabric with one worker over HTTP."""

    def __init__(self, root: Path, http: ClientSession, store: str = "") -> None:
        """Starts nothing yet.

        Args:
            root: an empty directory.
            http: sends the requests.
            store: address of the store; a directory below ``root`` by default.
        """
        self._bench = Bench(root, workers=1, store=store)
        self._http = http
        self._number = 0

    async def start(self) -> None:
        """Starts the control plane and the worker."""
        await self._bench.start()

    async def stop(self) -> None:
        """Ends both."""
        await self._bench.stop()

    async def share(self) -> None:
        """Lets both tenants share results: the control."""
        await self._ask("PUT", "/v1/policies?only=1", msgspec.json.encode([GROUP]))

    async def runs(self, pairs: int, *, upload: bool = False, seed: int = 0) -> Samples:
        """Returns samples of the observer's runs of steps that the owner ran, and of fresh ones.

        Args:
            pairs: samples of each kind.
            upload: whether the step reads rows that both have uploaded.
            seed: of the order.
        """

        async def prepare(tenant: str, number: int) -> dict[str, Any]:
            rows = _rows(number, 64) if upload else b""
            reference = (await self._uploaded(tenant, rows))["reference"] if rows else ""
            return _workflow(tenant, number, reference)

        return await self._samples(pairs, prepare, self._run, OWNER, seed)

    async def uploads(self, pairs: int, *, own: bool, seed: int = 0) -> Samples:
        """Returns samples of uploads of models that the owner has, and of fresh ones.

        Args:
            pairs: samples of each kind.
            own: whether the owner is the observer itself: the control.
            seed: of the order.
        """

        async def prepare(_: str, number: int) -> bytes:
            return _tree(number)

        async def upload(tree: bytes, tenant: str) -> Features:
            path = f"/v1/trees?namespace={tenant}&kind=model"
            began = time.perf_counter()
            answer = await self._ask("POST", path, io.BytesIO(tree))
            return {"seconds": time.perf_counter() - began, "bytes": len(answer)}

        return await self._samples(pairs, prepare, upload, OBSERVER if own else OWNER, seed)

    async def _samples(
        self,
        pairs: int,
        prepare: Callable[[str, int], Awaitable[T]],
        take: Callable[[T, str], Awaitable[Features]],
        owner: str,
        seed: int,
    ) -> Samples:
        """Takes samples in batches: the owner's all at once, the observer's one by one.

        Args:
            pairs: samples of each kind.
            prepare: returns what a tenant asks for, by its number; not timed.
            take: asks for it.
            owner: asks first for what is then known.
            seed: of the order.
        """
        rng, found = Random(seed), Samples({KNOWN: [], FRESH: []})
        for first in range(0, pairs, BATCH):
            numbers = range(self._number + 1, self._number + 1 + 2 * min(BATCH, pairs - first))
            self._number = numbers[-1]
            kinds = dict(zip(numbers, [KNOWN, FRESH] * BATCH, strict=False))

            async def own(number: int) -> None:
                await take(await prepare(owner, number), owner)

            await asyncio.gather(*(own(n) for n in numbers if kinds[n] == KNOWN))
            asked = rng.sample(numbers, len(numbers))
            prepared = await asyncio.gather(*(prepare(OBSERVER, n) for n in asked))
            for number, document in zip(asked, prepared, strict=True):
                found[kinds[number]].append(await take(document, OBSERVER))
        return found

    async def _run(self, document: Mapping[str, Any], tenant: str) -> Features:
        """Runs a workflow to its end."""
        began = time.perf_counter()
        body = json.dumps({"document": document}).encode()
        uid = json.loads(await self._ask("POST", "/v1/runs", body))["uid"]
        watched = await self._ask("GET", f"/v1/runs/{uid}/watch")
        seconds = time.perf_counter() - began
        status = json.loads(watched.splitlines()[-1])
        if status["phase"] != "Succeeded":
            raise SystemExit(f"a run of {tenant} is {status['phase']}: {status.get('message')}")
        receipt = await self._ask("GET", f"/v1/runs/{uid}/receipt")
        return {
            "seconds": seconds,
            "actions run": status.get("executed", 0),
            "hits": status.get("hits", 0),
            "dollars": float(status.get("paid_nanousd", 0)),
            "bytes of the status": len(json.dumps(status)),
            "bytes of the receipt": len(receipt),
        }

    async def _uploaded(self, tenant: str, rows: bytes) -> dict[str, Any]:
        path = f"/v1/datasets?namespace={tenant}&name=rows.jsonl"
        return dict(json.loads(await self._ask("POST", path, rows)))

    async def _ask(self, method: str, path: str, data: bytes | io.BytesIO | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = self._bench.url + path
        async with self._http.request(method, url, data=data, headers=headers) as response:
            content = await response.read()
            if response.status >= 400:
                raise SystemExit(f"{method} {path}: {response.status} {content[:500]!r}")
            return content


_NONCE = secrets.token_hex(8)


def _rows(number: int, count: int) -> bytes:
    """Returns rows that are the same for equal numbers of one process only."""
    rng = Random(f"{_NONCE} {number}")
    rows = ({"id": n, "text": rng.randbytes(TEXT_BYTES // 2).hex()} for n in range(count))
    return b"\n".join(json.dumps(row).encode() for row in rows)


def _tree(number: int) -> bytes:
    """Returns a tar of a directory that is the same for equal numbers of one process only."""
    data, archive = Random(f"{_NONCE} {number}").randbytes(WEIGHTS_BYTES), io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("tokenizer.model")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def _workflow(tenant: str, number: int, reference: str) -> dict[str, Any]:
    step: dict[str, Any] = {"name": "step", "uses": "test.sleep"}
    spec: dict[str, Any] = {"steps": [step]}
    if reference:
        step |= {"uses": "data.sql", "inputs": {"rows": "inputs.rows"}}
        step["with"] = {"query": "select count(distinct text) as n from rows"}
        spec["inputs"] = {"rows": {"dataset": reference}}
    else:
        step["with"] = {"seconds": 0.02, "value": f"{_NONCE} {number:09d}"}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "observed", "namespace": tenant},
        "spec": spec,
    }
