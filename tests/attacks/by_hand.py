"""A control plane in this process, and workers that speak the protocol by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from tests.flowmesh_control import waiting
from tests.flowmesh_control.fabric import API_TOKEN, KEY, NoSecrets, loop_of, sealed, workflow

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.auth.users import StaticUsers, Users
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.settings import ControlSettings
from flowmesh_control.workers.gateway import PoolTrust, default_trust
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.machine.settings import Settings
from flowmesh_core.machine.step_results import metrics_artifact
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Desired,
    EngineVersion,
    Hello,
    Refused,
    ServingReplica,
    Sync,
    Welcome,
    WorkerShape,
    decode_control,
    encode,
)
from flowmesh_core.protocol.results import ActionResult, Artifact, Usage
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.action_cache import decoded
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import Store, open_store


async def until(condition: Callable[[], object]) -> None:
    """Returns when the condition holds; nothing here takes long."""
    await waiting.until(condition, within_s=60)


TOKENS = {"good": "token-of-good", "good-too": "token-of-good-too", "low": "token-of-low"}


@dataclass
class HandWorker:
    """One connection of a worker; what it is told gathers in ``assigned`` and ``acknowledged``."""

    socket: ClientWebSocketResponse
    answer: Welcome | Refused
    assigned: dict[str, Assignment] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    replicas: tuple[ServingReplica, ...] | None = None
    closed: bool = False
    seq: int = 0
    _task: "asyncio.Task[None] | None" = None

    async def listen(self) -> None:
        async for raw in self.socket:
            if raw.type is not WSMsgType.BINARY:
                break
            message = decode_control(raw.data)
            assert isinstance(message, Desired)
            self.assigned.update({a.attempt_id: a for a in message.assign})
            self.acknowledged += message.acknowledged
            self.kept += message.keep
            self.cancelled += message.cancel
            self.forgotten += message.forget
            self.replicas = self.replicas if message.replicas is None else message.replicas
        self.closed = True

    async def sync(self, **changes: Any) -> None:
        self.seq += 1
        await self.socket.send_bytes(encode(Sync(seq=self.seq, **changes)))

    async def given(self, count: int = 1) -> list[Assignment]:
        """What it was told to run, once there is so much."""
        await until(lambda: len(self.assigned) >= count)
        return list(self.assigned.values())

    async def close(self) -> None:
        await self.socket.close()
        if self._task is not None:
            await self._task


@dataclass
class Place:
    """A leading control plane on a store that outlives it."""

    store: Store
    control: ControlPlane
    http: ClientSession
    token: str = API_TOKEN
    workers: list[HandWorker] = field(default_factory=list)

    async def join(
        self, name: str, pool: str = "good", token: str | None = None, **changes: Any
    ) -> HandWorker:
        url = self.control.url.replace("http", "ws", 1) + "/worker"
        headers = {"Authorization": f"Bearer {TOKENS[pool] if token is None else token}"}
        socket = await self.http.ws_connect(url, max_msg_size=0, headers=headers)
        hello = hello_of(name, pool, **changes)
        await socket.send_bytes(encode(hello))
        answer = decode_control((await socket.receive()).data)
        assert isinstance(answer, Welcome | Refused)
        worker = HandWorker(socket, answer)
        worker._task = asyncio.create_task(worker.listen())
        self.workers.append(worker)
        return worker

    async def submit(self, name: str, spec: dict[str, Any], **metadata: Any) -> str:
        document = workflow(name, spec)
        document["metadata"] |= metadata
        body = {"document": document}
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.control.url}/v1/runs"
        async with self.http.post(url, json=body, headers=headers) as response:
            accepted = await response.json()
            assert response.status in (200, 201), accepted
            return str(accepted["uid"])

    async def get(self, path: str, token: str = "") -> bytes:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with self.http.get(self.control.url + path, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.read()

    async def post(self, path: str, body: Any) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self.control.url + path
        async with self.http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.read()

    async def ended(self, uid: str) -> RunStatus:
        async with asyncio.timeout(120):
            data = await self.get(f"/v1/runs/{uid}/watch")
        return msgspec.json.decode(data.splitlines()[-1], type=RunStatus)

    @property
    def sealed(self) -> SealedRecords:
        """The store's records as the control plane reads and writes them."""
        return sealed(self.store)

    async def published(self) -> list[ActionResult]:
        """All records of results there are."""
        keys = [key async for key in self.store.records.keys("actions/")]
        found = [decoded(await self.sealed.read(key)) for key in keys]
        assert None not in found
        return [result for result in found if result is not None]

    @property
    def dropped(self) -> dict[str, int]:
        """What was dropped of workers' messages, by reason; reasons without any are left out."""
        counts = self.control.services.gateway.drops.counts
        return {str(reason): count for reason, count in counts.items() if count}

    @property
    def alive(self) -> bool:
        return self.control._failure is None

    async def heard(self, event: Callable[[], object] | None = None) -> None:
        """Returns once the machine has applied all that was posted before."""
        loop = loop_of(self.control)
        if event is not None:
            await until(event)
        await until(lambda: not loop.backlog)

    async def lead_anew(self) -> None:
        """Ends this control plane and lets another lead on the same store."""
        await self.control.stop()
        self.control = control_on(self.store)
        await self.control.start()


MACHINE = Settings(sync_window_s=1.0)


def control_on(
    store: Store,
    key_ring: KeyRing = KEY,
    trust_of: PoolTrust = default_trust,
    machine: Settings = MACHINE,
    settings: ControlSettings = ControlSettings(),  # noqa: B008 - frozen
    users: Users | None = None,
) -> ControlPlane:
    return ControlPlane(
        store,
        replace(settings, machine=machine, flush_s=0.05),
        catalog=load_catalog(),
        key_ring=key_ring,
        users=users or StaticUsers(API_TOKEN),
        tokens=StaticWorkerTokens(TOKENS),
        secrets=NoSecrets(),
        trust_of=trust_of,
    )


@asynccontextmanager
async def place(
    trust_of: PoolTrust = default_trust,
    store_url: str = "memory:",
    machine: Settings = MACHINE,
    settings: ControlSettings = ControlSettings(),  # noqa: B008 - frozen
    users: Users | None = None,
) -> AsyncIterator[Place]:
    store = open_store(store_url)
    control = control_on(store, trust_of=trust_of, machine=machine, settings=settings, users=users)
    await control.start()
    async with ClientSession() as http:
        found = Place(store, control, http)
        try:
            yield found
        finally:
            for worker in found.workers:
                await worker.close()
            await found.control.stop()


def hello_of(name: str, pool: str, **changes: Any) -> Hello:
    """The full state of a worker; its name has the pool's before it."""
    shape = WorkerShape(
        name=f"{pool}-{name}",
        pool=pool,
        device_class="cpu",
        device_memory_mib=4096,
        host_memory_mib=4096,
        cpus=1,
        price_nanousd_per_hour=1_000_000,
        engines={"test.noop": EngineVersion(1, 1), "test.sleep": EngineVersion(1, 1)},
    )
    shape = msgspec.structs.replace(shape, **changes.pop("shape", {}))
    hello = Hello(
        version=PROTOCOL_VERSION,
        epoch=0,
        incarnation=f"process of {name}",
        started_s=1.0,
        shape=shape,
        age_s=1.0,
    )
    return msgspec.structs.replace(hello, **changes)


def end_of(attempt_id: str, action_id: str, value: Any = "made", **changes: Any) -> AttemptEnd:
    """What an honest worker reports of an attempt of ``test.noop``."""
    made = metrics_artifact({"value": value})
    end = AttemptEnd(
        attempt_id=attempt_id,
        action_id=action_id,  # type: ignore[arg-type]
        outputs={"metrics": made},
        inline={made.blob: inline_of(made)},
        usage=Usage(units=1, run_s=0.1),
    )
    return msgspec.structs.replace(end, **changes)


def inline_of(artifact: Artifact) -> bytes:
    from flowmesh_core.identity import canonical_bytes

    return canonical_bytes(artifact.value)


def noop(value: str = "made") -> dict[str, Any]:
    return {"steps": [{"name": "one", "uses": "test.noop", "with": {"value": value}}]}


def holding(*attempt_ids: str, token: str = "") -> tuple[AttemptProgress, ...]:
    return tuple(AttemptProgress(a, "running", token=token) for a in attempt_ids)
