"""The gateway against a real WebSocket client that speaks the protocol by hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import (
    ClientSession,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
    web,
)
from tests.flowmesh_control.given import TOKENS, link_signer
from tests.flowmesh_control.waiting import until

from flowmesh_control.auth.worker_tokens import (
    StaticWorkerTokens,
    WorkerIdentity,
    WorkerTokenVerifier,
)
from flowmesh_control.workers.gateway import WorkerGateway
from flowmesh_control.workers.message_intake import DropReason
from flowmesh_control.workers.receive_rate import BYTES_PER_S, WINDOW_S
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.machine.events import (
    Event,
    ProtocolViolated,
    WorkerConnected,
    WorkerLost,
    WorkerSynced,
)
from flowmesh_core.protocol.attempt_grants import read_grant
from flowmesh_core.protocol.frames import COUNT_FROM_BYTES, MESSAGE_BYTES_MAX, VALUES_MAX
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    REFUSAL_HEADER,
    Assignment,
    AttemptEnd,
    AttemptProgress,
    ControlMessage,
    Desired,
    EngineVersion,
    FailureReport,
    Hello,
    PrewarmSpec,
    Refused,
    Sync,
    Welcome,
    WorkerShape,
    decode_control,
    encode,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

D = Digest("0" * 64)
DECLARED = PoolDeclaration(
    price_nanousd_per_hour=7,
    price_estimated=False,
    power_w=0.0,
    idle_w=0.0,
    labels={"a": "b"},
    zone="",
    allows_user_code=False,
    sandbox_minimum="",
    engines=frozenset({"test.noop"}),
    devices=0,
    device_memory_mib=0,
    host_memory_mib=512,
    cpus=1,
)


class Silent:
    def synced(self, worker: str, sync: Sync) -> None:
        pass

    def forget(self, worker: str) -> None:
        pass


class Unlogged:
    def joined(self, worker: str, pool: str, address: str) -> None:
        pass

    def refused(self, worker: str, pool: str, address: str, reason: str, code: int) -> None:
        pass

    def violated(self, worker: str, pool: str, problem: str) -> None:
        pass


@dataclass
class Endpoint:
    url: str
    gateway: WorkerGateway
    http: ClientSession
    events: list[Event]
    now: list[float]
    later: list[int] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)

    async def open(self, token: str = "secret") -> ClientWebSocketResponse:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.http.ws_connect(self.url, headers=headers, max_msg_size=0)

    async def connect(self, hello: Hello, token: str = "secret") -> ClientWebSocketResponse:
        socket = await self.open(token)
        await socket.send_bytes(encode(hello))
        return socket

    async def join(self, hello: Hello) -> ClientWebSocketResponse:
        """Connects and is answered as the loop would answer."""
        socket = await self.connect(hello)
        assert isinstance(await receive_message(socket), Welcome)
        await until(lambda: any(isinstance(e, WorkerConnected) for e in self.events))
        self.gateway.confirm_attempts(hello.shape.name, ())
        self.gateway.flush()
        return socket


def hello(name: str = "local-w1", **changes: object) -> Hello:
    shape = WorkerShape(
        name=name,
        pool="local",
        device_class="cpu",
        device_memory_mib=1024,
        host_memory_mib=1024,
        cpus=1,
        price_nanousd_per_hour=1,
        engines={"test.noop": EngineVersion(1, 1)},
    )
    full = Hello(
        version=PROTOCOL_VERSION,
        epoch=0,
        incarnation="i1",
        started_s=1.0,
        shape=shape,
    )
    return msgspec.structs.replace(full, **changes)


def assignment(n: int) -> Assignment:
    return Assignment(f"a{n}", D, D, "test.noop", 1, 1, {}, {}, {})


async def receive_message(socket: ClientWebSocketResponse) -> ControlMessage:
    message = await socket.receive(timeout=60)
    assert message.type is WSMsgType.BINARY, message
    return decode_control(message.data)


async def desired(socket: ClientWebSocketResponse) -> Desired:
    """The next message to the worker."""
    message = await receive_message(socket)
    assert isinstance(message, Desired)
    return message


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    events: list[Event] = []
    now, later, forgotten = [100.0], list[int](), set[str]()
    gateway = WorkerGateway(
        epoch=3,
        attempt_tokens=TOKENS,
        link_signer=link_signer(),
        post=events.append,
        tokens=StaticWorkerTokens(
            {"local": "secret", "other": "elsewhere", "local-other": "third"}
        ),
        telemetry=Silent(),
        log=Unlogged(),
        clock=lambda: now[0],
        wall_clock=lambda: now[0],
        watchdog_s=10.0,
        sync_interval_s=1.0,
        knows=lambda name: name not in forgotten,
        later_epoch_seen=later.append,
    )
    app = web.Application()
    app.router.add_get("/worker", gateway.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with ClientSession() as http:
        yield Endpoint(f"ws://{host}:{port}/worker", gateway, http, events, now, later, forgotten)
    await runner.cleanup()


async def test_a_worker_is_welcomed_and_its_token_is_not_passed_on(endpoint: Endpoint) -> None:
    socket = await endpoint.connect(hello())
    assert await receive_message(socket) == Welcome(PROTOCOL_VERSION, 3, 1.0)
    await until(lambda: endpoint.events)
    [event] = endpoint.events
    assert isinstance(event, WorkerConnected)
    assert event.hello == hello()


@pytest.mark.parametrize(
    ("changes", "final", "reason"),
    [
        ({"version": 99}, True, "version"),
        ({"epoch": 4}, False, "epoch"),
    ],
)
async def test_an_incompatible_worker_is_refused_with_the_reason(
    endpoint: Endpoint, changes: dict[str, object], final: bool, reason: str
) -> None:
    socket = await endpoint.connect(hello(**changes))
    answer = await receive_message(socket)
    assert isinstance(answer, Refused)
    assert answer.final is final
    assert reason in answer.reason
    assert endpoint.events == []
    assert endpoint.later == ([4] if "epoch" in changes else [])


async def test_a_worker_whose_messages_crashed_the_control_plane_twice_is_refused(
    endpoint: Endpoint,
) -> None:
    object.__setattr__(endpoint.gateway._joins, "refused", {"local-w1"})
    answer = await receive_message(await endpoint.connect(hello()))
    assert isinstance(answer, Refused)
    assert answer.final
    assert "delete the worker's pod" in answer.reason


class Away:
    """Nobody who could say whose token it is can be asked."""

    async def identity_of(self, token: str) -> WorkerIdentity | None:
        raise FlowMeshError("the API server does not answer", remedy="it tries again")


class OfPods:
    """A token is that of the pod of its name, which is a minute old."""

    async def identity_of(self, token: str) -> WorkerIdentity | None:
        return WorkerIdentity("local", token, 40.0, declared=True)


def verify_by(endpoint: Endpoint, tokens: WorkerTokenVerifier) -> None:
    object.__setattr__(endpoint.gateway._joins, "tokens", tokens)


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        (None, "has no worker token"),
        ("Bearer ", "has no worker token"),
        ("Basic secret", "has no worker token"),
        ("Bearer guess", "not valid for any pool"),
    ],
)
async def test_without_a_valid_token_a_request_gets_401_with_a_reason_and_no_message_is_read(
    endpoint: Endpoint, authorization: str | None, reason: str
) -> None:
    headers = {"Authorization": authorization} if authorization is not None else {}
    with pytest.raises(WSServerHandshakeError) as refused:
        await endpoint.http.ws_connect(endpoint.url, headers=headers)
    assert refused.value.status == 401
    assert reason in refused.value.headers[REFUSAL_HEADER]
    async with endpoint.http.get(endpoint.url.replace("ws", "http", 1), headers=headers) as plain:
        assert plain.headers["WWW-Authenticate"] == "Bearer"
        assert reason in (await plain.json())["error"]["message"]


async def test_a_worker_whose_token_cannot_be_checked_now_may_try_again(endpoint: Endpoint) -> None:
    verify_by(endpoint, Away())
    with pytest.raises(WSServerHandshakeError) as refused:
        await endpoint.connect(hello())
    assert refused.value.status == 503
    assert refused.value.headers["Retry-After"] == "1"
    assert refused.value.headers[REFUSAL_HEADER] == "the API server does not answer; it tries again"


async def test_the_pod_of_a_worker_that_crashed_the_control_plane_is_refused_with_403(
    endpoint: Endpoint,
) -> None:
    verify_by(endpoint, OfPods())
    object.__setattr__(endpoint.gateway._joins, "refused", {"a-pod"})
    with pytest.raises(WSServerHandshakeError) as refused:
        await endpoint.connect(hello(), "a-pod")
    assert refused.value.status == 403
    assert "delete the worker's pod" in refused.value.headers[REFUSAL_HEADER]


@pytest.mark.parametrize(
    ("name", "token", "reason"),
    [
        ("w1", "secret", "start the worker with --name local-w1"),
        ("local-", "secret", "does not begin with"),
        ("locals-1", "secret", "does not begin with"),
        ("other-1", "secret", "does not begin with"),
        ("local-1", "elsewhere", "start the worker with --pool other"),
    ],
)
async def test_a_name_begins_with_the_pool_of_its_token(
    endpoint: Endpoint, name: str, token: str, reason: str
) -> None:
    answer = await receive_message(await endpoint.connect(hello(name), token))
    assert isinstance(answer, Refused)
    assert answer.final
    assert reason in answer.reason
    assert endpoint.events == []


async def test_a_worker_in_a_pod_must_use_the_pod_name_of_its_token(endpoint: Endpoint) -> None:
    verify_by(endpoint, OfPods())
    endpoint.gateway._declared = lambda _: DECLARED
    answer = await receive_message(await endpoint.connect(hello("local-w1"), "the-pod"))
    assert isinstance(answer, Refused)
    assert answer.final
    assert "start the worker with --name the-pod" in answer.reason
    socket = await endpoint.connect(hello("the-pod"), "the-pod")
    assert isinstance(await receive_message(socket), Welcome)


async def test_a_worker_of_a_pool_that_is_not_known_yet_may_try_again(endpoint: Endpoint) -> None:
    verify_by(endpoint, OfPods())
    answer = await receive_message(await endpoint.connect(hello("the-pod"), "the-pod"))
    assert isinstance(answer, Refused)
    assert not answer.final
    assert "does not know the pool" in answer.reason


@pytest.mark.parametrize(("pods", "age_s"), [(True, 60.0), (False, 0.0)])
async def test_the_shape_and_age_that_a_worker_reports_are_bounded_by_its_pool_and_pod(
    endpoint: Endpoint, pods: bool, age_s: float
) -> None:
    if pods:
        verify_by(endpoint, OfPods())
    endpoint.gateway._declared = lambda _: DECLARED
    name, token = ("the-pod", "the-pod") if pods else ("local-w1", "secret")
    said = hello(name, age_s=1e8, started_s=1.0)
    assert isinstance(await receive_message(await endpoint.connect(said, token)), Welcome)
    await until(lambda: endpoint.events)
    [event] = endpoint.events
    assert isinstance(event, WorkerConnected)
    assert event.hello.shape == DECLARED.bound(said.shape)
    assert (event.hello.age_s, event.hello.started_s) == (age_s, 100.0 - age_s)


async def test_a_first_message_that_is_not_a_hello_is_refused(endpoint: Endpoint) -> None:
    for data in (b"\xc1", encode(Sync(seq=1))):
        socket = await endpoint.open()
        await socket.send_bytes(data)
        assert isinstance(await receive_message(socket), Refused)


async def test_a_name_in_use_is_refused_but_the_same_worker_may_reconnect(
    endpoint: Endpoint,
) -> None:
    first = await endpoint.join(hello())
    other = await endpoint.connect(hello(incarnation="i2"))
    answer = await receive_message(other)
    assert isinstance(answer, Refused)
    assert not answer.final
    again = await endpoint.connect(hello())
    assert isinstance(await receive_message(again), Welcome)
    await desired(first)
    assert (await first.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)


async def test_a_restarted_worker_takes_its_name_once_the_old_socket_is_closed(
    endpoint: Endpoint,
) -> None:
    first = await endpoint.join(hello())
    await first.close()
    await until(lambda: endpoint.gateway._session("local-w1") is None)
    second = await endpoint.connect(hello(incarnation="i2"))
    assert isinstance(await receive_message(second), Welcome)


async def test_changes_of_the_desired_state_are_sent_in_one_message_per_turn(
    endpoint: Endpoint,
) -> None:
    socket = await endpoint.join(hello())
    first = await desired(socket)
    assert first.full_state
    assert first.seq == 1
    for n in range(5):
        endpoint.gateway.assign("local-w1", assignment(n), 1, ())
    endpoint.gateway.cancel("local-w1", "a0")
    endpoint.gateway.acknowledge("local-w1", "old")
    endpoint.gateway.flush()
    second = await desired(socket)
    assert [a.attempt_id for a in second.assign] == ["a0", "a1", "a2", "a3", "a4"]
    assert (second.cancel, second.acknowledged) == (("a0",), ("old",))
    assert (second.seq, second.epoch, second.full_state) == (2, 3, False)


async def test_the_prewarm_list_is_sent_once_in_order_with_the_other_changes(
    endpoint: Endpoint,
) -> None:
    socket = await endpoint.join(hello())
    assert (await desired(socket)).prewarm is None
    model, scopes = {"model": Artifact("model", D, D)}, ("ns-a", "group-x")
    one = PrewarmSpec(D, "llm.generate", 1, 1, model, read_scopes=scopes)
    for openings in ((one,), ()):
        endpoint.gateway.prewarm("local-w1", (one, one))
        endpoint.gateway.prewarm("local-w1", openings)
        endpoint.gateway.flush()
        sent = (await desired(socket)).prewarm
        assert sent is not None
        assert tuple(msgspec.structs.replace(p, token="") for p in sent) == openings
        for grant in (read_grant(p.token) for p in sent):
            assert (grant.readable, grant.write_scope, grant.attempt_id) == (scopes, "", "")
            assert grant.worker == "local-w1"
    endpoint.gateway.acknowledge("local-w1", "old")
    endpoint.gateway.flush()
    assert (await desired(socket)).prewarm is None


async def test_acknowledgements_wait_briefly_for_other_changes_to_send(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    await desired(socket)
    endpoint.gateway.acknowledge("local-w1", "one")
    endpoint.gateway.flush()
    await asyncio.sleep(0)  # the sender would send it now
    endpoint.gateway.assign("local-w1", assignment(1), 1, ())
    endpoint.gateway.flush()
    both = await desired(socket)
    assert (both.acknowledged, [a.attempt_id for a in both.assign]) == (("one",), ["a1"])
    endpoint.gateway.acknowledge("local-w1", "two")
    endpoint.gateway.flush()
    alone = await desired(socket)
    assert (alone.acknowledged, alone.assign) == (("two",), ())


async def test_large_batches_are_split_and_numbered_without_a_gap(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    await desired(socket)
    big = msgspec.structs.replace(assignment(0), params={"text": "x" * 300_000})
    for n in range(600):
        one = big if n < 20 else assignment(n)
        endpoint.gateway.assign("local-w1", msgspec.structs.replace(one, attempt_id=f"a{n}"), 1, ())
    endpoint.gateway.cancel("local-w1", "a599")
    endpoint.gateway.flush()
    got: list[str] = []
    numbers: list[int] = []
    while True:
        message = await desired(socket)
        got += [a.attempt_id for a in message.assign]
        numbers.append(message.seq)
        if message.cancel:
            break
    assert got == [f"a{n}" for n in range(600)]
    assert numbers == list(range(2, 2 + len(numbers)))
    assert len(numbers) > 3


async def test_nothing_is_sent_before_the_reply_to_the_full_state(endpoint: Endpoint) -> None:
    socket = await endpoint.connect(hello())
    await receive_message(socket)
    await until(lambda: endpoint.events)
    endpoint.gateway.assign("local-w1", assignment(1), 1, ())
    endpoint.gateway.flush()
    endpoint.gateway.confirm_attempts("local-w1", ("held",))
    endpoint.gateway.assign("local-w1", assignment(2), 1, ())
    endpoint.gateway.flush()
    message = await desired(socket)
    assert message.full_state
    assert message.keep == ("held",)
    assert [a.attempt_id for a in message.assign] == ["a2"]


async def test_a_gap_in_the_sequence_numbers_ends_the_connection(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    await socket.send_bytes(encode(Sync(seq=1)))
    await socket.send_bytes(encode(Sync(seq=3)))
    await desired(socket)
    assert (await socket.receive()).type is WSMsgType.CLOSE
    synced = [e for e in endpoint.events if isinstance(e, WorkerSynced)]
    assert [e.sync.seq for e in synced] == [1]


async def test_a_silent_worker_is_lost_after_the_watchdog_even_while_connected(
    endpoint: Endpoint,
) -> None:
    socket = await endpoint.join(hello())
    endpoint.now[0] += 9.0
    await socket.send_bytes(encode(Sync(seq=1)))
    await until(lambda: any(isinstance(e, WorkerSynced) for e in endpoint.events))
    endpoint.now[0] += 9.0
    endpoint.gateway.watch()
    assert not any(isinstance(e, WorkerLost) for e in endpoint.events)
    endpoint.now[0] += 2.0
    endpoint.gateway.watch()
    assert [e.name for e in endpoint.events if isinstance(e, WorkerLost)] == ["local-w1"]
    assert endpoint.gateway.workers == []


async def test_silence_during_a_stall_of_the_control_plane_does_not_count_against_workers(
    endpoint: Endpoint,
) -> None:
    await endpoint.join(hello())
    endpoint.gateway._checked_at -= 60.0
    endpoint.now[0] += 60.0
    endpoint.gateway.watch()
    assert not any(isinstance(e, WorkerLost) for e in endpoint.events)


async def test_a_worker_that_said_goodbye_is_not_reported_as_lost(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    await socket.send_bytes(encode(Sync(seq=1, goodbye=True)))
    await until(lambda: not endpoint.gateway.workers)
    endpoint.now[0] += 60.0
    endpoint.gateway.watch()
    assert not any(isinstance(e, WorkerLost) for e in endpoint.events)
    assert isinstance(endpoint.events[-1], WorkerSynced)


async def test_a_worker_that_the_machine_forgot_is_disconnected_to_report_its_full_state_again(
    endpoint: Endpoint,
) -> None:
    socket = await endpoint.join(hello())
    await desired(socket)
    endpoint.gateway.watch()
    endpoint.forgotten.add("local-w1")
    endpoint.gateway.watch()
    assert (await socket.receive(timeout=60)).type is WSMsgType.CLOSE


async def test_an_invalid_worker_shape_is_refused_with_the_field(endpoint: Endpoint) -> None:
    shape = msgspec.structs.replace(hello().shape, price_nanousd_per_hour=-1)
    answer = await receive_message(await endpoint.connect(hello(shape=shape)))
    assert isinstance(answer, Refused)
    assert answer.final
    assert "shape.price_nanousd_per_hour: -1" in answer.reason
    assert endpoint.events == []
    assert endpoint.gateway.drops.counts["malformed"] == 1


async def test_a_refusal_quotes_little_of_the_refused_message(endpoint: Endpoint) -> None:
    for long in ({"pool": "x" * 10**6}, {"name": "x" * 10**6}):
        shape = msgspec.structs.replace(hello().shape, **long)
        answer = await receive_message(await endpoint.connect(hello(shape=shape)))
        assert isinstance(answer, Refused)
        assert len(answer.reason) <= 2000


async def test_a_name_of_another_pool_is_refused_even_while_its_worker_is_disconnected(
    endpoint: Endpoint,
) -> None:
    name = "local-other-1"
    first = await endpoint.join(hello(name))
    stranger = msgspec.structs.replace(hello(name).shape, pool="local-other")
    for _ in range(2):
        answer = await receive_message(await endpoint.connect(hello(shape=stranger), "third"))
        assert isinstance(answer, Refused)
        assert not answer.final
        assert "another pool" in answer.reason
        await first.close()
        await until(lambda: endpoint.gateway._session(name) is None)
    endpoint.gateway.lost(name, "it is known to be dead")
    late = await endpoint.connect(hello(shape=stranger), "third")
    assert isinstance(await receive_message(late), Welcome)


async def test_ten_dropped_items_within_a_minute_close_the_connection(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    await desired(socket)
    odd = {"metrics": {"stored_bytes": -1.0}}
    for seq in range(1, 10):
        await socket.send_bytes(encode(Sync(seq=seq, **odd)))
    await until(lambda: endpoint.gateway.drops.counts["malformed"] == 9)
    endpoint.now[0] += 61.0
    for seq in range(10, 19):
        await socket.send_bytes(encode(Sync(seq=seq, **odd)))
    await until(lambda: endpoint.gateway.drops.counts["malformed"] == 18)
    assert not socket.closed
    assert endpoint.gateway._session("local-w1") is not None
    await socket.send_bytes(encode(Sync(seq=19, **odd)))
    assert (await socket.receive()).type is WSMsgType.CLOSE
    synced = [e for e in endpoint.events if isinstance(e, WorkerSynced)]
    assert [e.sync.metrics for e in synced] == [{}] * 19


@pytest.mark.parametrize("data", [b"\xc1", b"", encode(hello()), b"\x91" * 100_000])
async def test_an_unreadable_message_is_counted_and_ends_the_connection(
    endpoint: Endpoint, data: bytes
) -> None:
    socket = await endpoint.join(hello())
    await desired(socket)
    await socket.send_bytes(data)
    assert (await socket.receive()).type is WSMsgType.CLOSE
    assert endpoint.gateway.drops.counts["unreadable"] == 1
    assert endpoint.gateway.workers == ["local-w1"]


async def test_a_worker_with_attempts_of_another_master_key_drops_them_and_stays_connected(
    endpoint: Endpoint,
) -> None:
    """As after the master key was lost."""
    foreign = [f"ns-a/{D}/1-{n}" for n in range(30)]
    held = tuple(AttemptProgress(i, "running") for i in foreign)
    ended = tuple(AttemptEnd(i, D, failure=FailureReport("cancelled", "it was")) for i in foreign)
    first = await endpoint.join(hello(attempts=held))
    reply = await receive_message(first)
    assert isinstance(reply, Desired)
    assert (reply.full_state, reply.keep) == (True, ())
    await first.send_bytes(encode(Sync(seq=1, ended=ended)))
    assert (await first.receive()).type is WSMsgType.CLOSE
    second = await endpoint.join(hello(ended=ended))
    reply = await receive_message(second)
    assert isinstance(reply, Desired)
    assert list(reply.acknowledged) == foreign
    await second.send_bytes(encode(Sync(seq=1)))
    synced = [WorkerSynced("local-w1", "i1", Sync(seq=1))] * 2
    await until(lambda: [e for e in endpoint.events if isinstance(e, WorkerSynced)] == synced)
    assert not second.closed


async def test_an_oversized_message_is_not_decoded_and_counts_as_a_violation(
    endpoint: Endpoint,
) -> None:
    many = b"\x83\xa4type\xa4sync\xa3seq\x01\xa6spoils\xdd" + (VALUES_MAX).to_bytes(4, "big")
    many += b"\x90" * VALUES_MAX
    for data in (bytes(MESSAGE_BYTES_MAX + 1), many + b"\xc0" * COUNT_FROM_BYTES):
        before = endpoint.gateway.drops.counts[DropReason.TOO_LARGE]
        endpoint.events.clear()
        socket = await endpoint.join(hello())
        with contextlib.suppress(ConnectionError):  # the gateway closes before all was sent
            await socket.send_bytes(data)
        await until(lambda n=before: endpoint.gateway.drops.counts[DropReason.TOO_LARGE] == n + 1)
        assert [type(e) for e in endpoint.events] == [WorkerConnected, ProtocolViolated]
        await until(lambda: endpoint.gateway._session("local-w1") is None)
        await socket.close()


async def test_a_worker_that_sends_too_much_is_throttled_and_loses_nothing(
    endpoint: Endpoint,
) -> None:
    socket = await endpoint.join(hello())
    known = endpoint.gateway._known["local-w1"]
    known.rate.pause_s(endpoint.now[0], int(BYTES_PER_S * (WINDOW_S + 0.05)), 0)
    for seq in range(1, 4):
        await socket.send_bytes(encode(Sync(seq=seq)))
    synced = lambda: sum(isinstance(e, WorkerSynced) for e in endpoint.events)  # noqa: E731
    await until(lambda: endpoint.gateway.paused["local"] >= 1)
    assert known.seen_s > endpoint.now[0]
    await until(lambda: synced() == 3)
    endpoint.now[0] += 1.0
    pauses = endpoint.gateway.paused["local"]
    await socket.send_bytes(encode(Sync(seq=4)))
    await until(lambda: synced() == 4)
    assert endpoint.gateway.paused["local"] == pauses


async def test_a_hello_that_is_not_utf_8_is_refused_with_the_reason(endpoint: Endpoint) -> None:
    socket = await endpoint.open()
    data = encode(hello("a-name"))
    await socket.send_bytes(data.replace(b"a-name", b"\xff-name"))
    answer = await receive_message(socket)
    assert isinstance(answer, Refused)
    assert answer.final
    assert "not UTF-8" in answer.reason
    assert endpoint.gateway.drops.counts[DropReason.UNREADABLE] == 1


async def test_a_sync_that_is_not_utf_8_is_counted_as_unreadable(endpoint: Endpoint) -> None:
    socket = await endpoint.join(hello())
    data = encode(Sync(seq=1, metrics={"a-name": 1.0}))
    await socket.send_bytes(data.replace(b"a-name", b"\xff-name"))
    await until(lambda: endpoint.gateway.drops.counts[DropReason.UNREADABLE] == 1)
