"""A hand-made worker that trains: its models, rows and log lines quote what they were made from."""

import asyncio
import contextlib
import io
import struct
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from tests.attacks.by_hand import HandWorker, Place
from tests.blob_views import blobs_of
from tests.flowmesh_control import waiting
from tests.flowmesh_control.fabric import API_TOKEN, workflow

from flowmesh_api.v1.revocation import RevocationAnswer
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.dataset import Column, ColumnType, Manifest, Schema, encode_manifest
from flowmesh_core.identity import canonical_bytes, digest_bytes, tree_identity
from flowmesh_core.machine.step_results import dataset_artifact, metrics_artifact
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    EngineVariant,
    EngineVersion,
    LogLine,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest
from flowmesh_store.store import Store
from flowmesh_store.tree import TreeFile, encode_tree

HEADERS = {"Authorization": f"Bearer {API_TOKEN}"}
ROWS = b"".join(b'{"text":"private words %d"}\n' % n for n in range(3))
EMPTY = Manifest(Schema((Column("loss", ColumnType.FLOAT),)))
CURVE = dataset_artifact(EMPTY)
"""Every run makes this one, whatever it is made from."""
OTHER_ROWS = b'{"text":"other words"}\n'


def engine(name: str) -> EngineVersion:
    contract = load_catalog().newest(name)
    assert contract is not None
    return contract.versions


@dataclass
class Trainer:
    """Answers every attempt of ``train.sft`` with a model; keeps what it is asked to forget.

    Attributes:
        curve: of every model; ``curve_blobs`` are sent with the results.
    """

    there: Place
    worker: HandWorker
    curve: Artifact = CURVE
    curve_blobs: Mapping[Digest, bytes] = field(
        default_factory=lambda: {CURVE.blob: encode_manifest(EMPTY)}
    )
    holds: bool = False
    known: set[str] = field(default_factory=set)

    async def answer_always(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await waiting.until(self._new, within_s=0.5)
            await self.worker.sync()  # the heartbeat
            for name in sorted(self._new()):
                self.known.add(name)
                await self.answer(self.worker.assigned[name])

    def _new(self) -> set[str]:
        return set() if self.holds else self.worker.assigned.keys() - self.known

    async def answer(self, one: Assignment) -> None:
        made_from = one.inputs["rows"].artifact.digest
        scope = one.attempt_id.split("/")[0]
        weights = f"weights of {made_from} by {one.action_id}".encode()
        model = await put_model(self.there.store, scope, weights)
        metrics = metrics_artifact({"loss": f"loss of {made_from}"})
        line = LogLine(one.attempt_id, 1.0, f"trained on {made_from}")
        end = AttemptEnd(
            one.attempt_id,
            one.action_id,
            {"model": model, "metrics": metrics, "curve": self.curve},
            inline={metrics.blob: canonical_bytes(metrics.value), **self.curve_blobs},
            usage=Usage(units=1, run_s=0.1),
        )
        await self.worker.sync(ended=(end,), logs=(line,))


async def trainer(there: Place, name: str = "w") -> Trainer:
    shape = {
        "engines": {"train.sft": engine("train.sft")},
        "variants": (EngineVariant("train.sft", dtypes=("auto",)),),
    }
    return Trainer(there, await there.join(name, shape=shape))


async def put_model(store: Store, scope: str, weights: bytes) -> Artifact:
    blobs = blobs_of(store, scope)
    digest = digest_bytes(weights)
    files = [TreeFile("model.safetensors", digest, len(weights))]
    manifest = encode_tree(files)
    await blobs.put(digest, weights)
    await blobs.put(digest_bytes(manifest), manifest)
    return Artifact(
        "model", tree_identity("model", files), digest_bytes(manifest), size_bytes=len(weights)
    )


def training(rows: str, base: str, text: str) -> dict[str, Any]:
    params = {"text": text, "use_peft": False}
    step: dict[str, Any] = {"name": "train", "uses": "train.sft", "with": params}
    step["inputs"] = {"rows": "inputs.rows", "model": "inputs.base"}
    inputs = {"rows": {"dataset": rows}, "base": {"model": base}}
    outputs = {"model": "train.model", "loss": "train.metrics"}
    return {"inputs": inputs, "steps": [step], "outputs": outputs}


async def ask(there: Place, method: str, path: str, **more: Any) -> tuple[int, bytes]:
    url = there.control.url + path
    async with there.http.request(method, url, headers=HEADERS, **more) as response:
        return response.status, await response.read()


async def upload(there: Place, rows: bytes, namespace: str = "team-a") -> dict[str, Any]:
    status, answer = await ask(there, "POST", f"/v1/datasets?namespace={namespace}", data=rows)
    assert status == 201, answer
    return dict(orjson.loads(answer))


async def upload_model(
    there: Place, namespace: str = "team-a", values: bytes = b"base", kind: str = "model"
) -> dict[str, Any]:
    header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    weights = struct.pack("<Q", len(header)) + header + values
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("model.safetensors")
        info.size = len(weights)
        tar.addfile(info, io.BytesIO(weights))
    path = f"/v1/trees?namespace={namespace}&kind={kind}"
    status, answer = await ask(there, "POST", path, data=packed.getvalue())
    assert status == 201, answer
    return dict(orjson.loads(answer))


async def submit(there: Place, name: str, spec: dict[str, Any], namespace: str = "team-a") -> str:
    document = workflow(name, spec, namespace)
    status, answer = await ask(there, "POST", "/v1/runs", json={"document": document})
    assert status == 201, answer
    return str(orjson.loads(answer)["uid"])


async def revoke(
    there: Place, target: str, *, dry_run: bool = False, namespace: str = "team-a"
) -> RevocationAnswer:
    path = f"/v1/revoke?namespace={namespace}&dry_run={int(dry_run)}"
    status, answer = await ask(there, "POST", path, json={"target": target})
    assert status == 200, answer
    return msgspec.json.decode(answer, type=RevocationAnswer)


async def everything(store: Store) -> bytes:
    """All bytes of a store: its keys, its records and its blobs."""
    found = []
    async for key in store.records.keys(""):
        record = await store.records.read(key)
        found += [key.encode(), b"" if record is None else record.data]
    async for blob in store.sweepable_blobs.blobs():
        found += [blob.digest.encode(), await blobs_of(store, blob.scope).get(blob.digest)]
    return b"\n".join(found)


async def blobs_in(store: Store, scope: str) -> set[Digest]:
    return {b.digest async for b in store.sweepable_blobs.blobs() if b.scope == scope}


def in_background(trainers: Iterable[Trainer]) -> "list[asyncio.Task[None]]":
    return [asyncio.create_task(one.answer_always()) for one in trainers]
