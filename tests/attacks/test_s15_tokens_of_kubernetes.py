"""Attacker: T2, a user of Kubernetes who may call the services of one namespace, and one without.
Action: calls services of another namespace with valid tokens, and floods a router with forged ones.
Must not happen: it is answered, learns what exists, or makes the control plane review each token.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from tests.attacks.test_s1_services_of_others import body
from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_control.auth.users import User
from flowmesh_serving.callers.review_rate import PEER_BURST, PEER_PER_S
from flowmesh_serving.http.kubernetes_callers import BODIES_MAX
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings

CALL = frozenset({"call"})
OWNER = "system:serviceaccount:team-a:ci.o.o"
ATTACKER = "system:serviceaccount:team-b:ci.a.a"
NO_RIGHT = "system:serviceaccount:team-a:other.n.n"
RIGHTS = {
    "admin": {"*": EDIT},
    "router": {"//v1/router": frozenset({"get"})},
    OWNER: {"team-a/flowmeshservices": CALL},
    ATTACKER: {"team-b/flowmeshservices": CALL},
    NO_RIGHT: {},
}
CHAT = {"model": "ask", "messages": [{"role": "user", "content": "one"}]}


class CountedUsers(TableOfUsers):
    """Counts the tokens that it reviews."""

    def __init__(self) -> None:
        super().__init__(RIGHTS)
        self.reviewed: Counter[str] = Counter()

    async def user_of(self, token: str) -> User | None:
        self.reviewed[token] += 1
        return await super().user_of(token)


class Router:
    """A router, and the control plane that it asks."""

    def __init__(
        self, url: str, control_url: str, users: CountedUsers, http: ClientSession
    ) -> None:
        self.url = url
        self.control_url = control_url
        self.users = users
        self.http = http

    async def ask(
        self, token: str, path: str = "/v1/models", given: Any = None, project: str = ""
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        if project:
            headers["OpenAI-Project"] = project
        method = "GET" if given is None else "POST"
        async with self.http.request(
            method, self.url + path, json=given, headers=headers
        ) as response:
            return response.status, await response.json()


@contextlib.asynccontextmanager
async def routed(folder: Path, *more: dict[str, Any]) -> AsyncIterator[Router]:
    users = CountedUsers()
    control = control_plane(folder, users=users)
    await control.start()
    (folder / "token").write_text("router-token")
    settings = RouterSettings(
        "127.0.0.1", 0, hubs=folder / "hubs", control=control.url, token=folder / "token",
        replica_wait_s=0.05,
    )  # fmt: skip
    router = RouterServer(settings)
    try:
        async with ClientSession() as http:
            headers = {"Authorization": "Bearer admin-token"}
            for given in (body("team-a"), body("team-b"), *more):
                path = f"{control.url}/v1/services"
                async with http.post(path, json=given, headers=headers) as response:
                    assert response.status == 200, await response.text()
            await router.start()
            while not router._services.is_known:
                async with http.get(f"{router.url}/readyz"):
                    pass
            yield Router(router.url, control.url, users, http)
    finally:
        await router.stop()
        await control.stop()


def token(name: str) -> str:
    return f"{name}-token"


async def test_a_user_calls_services_of_namespaces_with_the_right_alone(tmp_path: Path) -> None:
    async with routed(tmp_path) as router:
        for name, project in ((ATTACKER, "team-a"), (ATTACKER, "none"), (NO_RIGHT, "")):
            for path, given in (("/v1/models", None), ("/v1/chat/completions", CHAT)):
                status, found = await router.ask(token(name), path, given, project)
                assert (status, found["error"]["code"]) == (403, "permission_denied"), found
        refusals = [
            await router.ask(token(ATTACKER), f"/v1/services/{service}:invoke", {})
            for service in ("team-a/ask", "team-a/none", "none/ask")
        ]
        assert {status for status, _ in refusals} == {403}, "what exists is not shown"
        status, found = await router.ask(token(ATTACKER), "/v1/chat/completions", CHAT)
        assert (status, found["error"]["code"]) == (503, "no_replica"), "its own is admitted"

        for project in ("", "team-a"):
            status, found = await router.ask(token(OWNER), project=project)
            assert (status, [m["owned_by"] for m in found["data"]]) == (200, ["team-a"])
        status, found = await router.ask(token(OWNER), "/v1/chat/completions", CHAT)
        assert (status, found["error"]["code"]) == (503, "no_replica")
        status, found = await router.ask(token(OWNER), "/v1/services/team-a/ask:invoke", {})
        assert (status, found["error"]["code"]) == (404, "service_not_found"), "it has no stages"


async def test_forged_tokens_are_not_all_reviewed_and_stop_no_known_one(tmp_path: Path) -> None:
    async with routed(tmp_path) as router:
        assert (await router.ask(token(OWNER)))[0] == 200
        statuses: Counter[int] = Counter()
        for number in range(60):
            statuses[(await router.ask(f"forged.{number}.x"))[0]] += 1
        assert set(statuses) == {401, 429}
        for _ in range(20):
            assert (await router.ask("forged.0.x"))[0] == 401
            assert (await router.ask("forged"))[0] == 401, "of another form: not asked about"
            assert (await router.ask(token(OWNER)))[0] == 200
        reviewed = router.users.reviewed
        assert reviewed["forged.0.x"] == reviewed[token(OWNER)] == 1
        assert "forged" not in reviewed
        forged = sum(count for name, count in reviewed.items() if name.startswith("forged"))
        assert forged <= PEER_BURST + 10 * PEER_PER_S


async def test_a_wrong_namespace_does_not_reach_the_control_plane(tmp_path: Path) -> None:
    async with routed(tmp_path) as router:
        for path in ("/v1/models", "/v1/services/..%2Fteam-a/ask:invoke"):
            given: Any = {} if path.endswith("invoke") else None
            status, found = await router.ask(token(OWNER), path, given, project="../team-a")
            assert (status, found["error"]["param"]) == (400, "OpenAI-Project")
        assert token(OWNER) not in router.users.reviewed


async def test_users_cannot_have_tokens_reviewed_as_routers_can(tmp_path: Path) -> None:
    async with routed(tmp_path) as router:
        for name, wanted in ((OWNER, 403), (ATTACKER, 403), ("router", 200)):
            headers = {"Authorization": f"Bearer {token(name)}"}
            asked = {"token": token(OWNER)}
            url = f"{router.control_url}/v1/router/callers"
            async with router.http.post(url, json=asked, headers=headers) as response:
                assert response.status == wanted


def second(namespace: str) -> dict[str, Any]:
    """Returns another service of a namespace, so that a request's model says which one it is."""
    found = body(namespace)
    found["document"]["metadata"]["name"] = "second"
    return found


async def test_the_model_of_a_request_says_which_service_it_calls(tmp_path: Path) -> None:
    async with routed(tmp_path, second("team-a")) as router:
        path, own = "/v1/chat/completions", token(OWNER)
        found = (await router.ask(own))[1]
        assert sorted(m["id"] for m in found["data"]) == ["ask", "second"]
        for model, status, code in (
            ("ask", 503, "no_replica"),
            ("second", 503, "no_replica"),
            ("third", 404, "model_not_found"),
            ("", 400, "missing_required_parameter"),
            (1, 400, "invalid_json"),
        ):
            got = await router.ask(own, path, {**CHAT, "model": model})
            assert (got[0], got[1]["error"]["code"]) == (status, code), model


async def test_bodies_that_do_not_arrive_stop_no_other_namespace(tmp_path: Path) -> None:
    async with routed(tmp_path, second("team-a"), second("team-b")) as router:
        host, port = router.url.removeprefix("http://").split(":")
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {token(ATTACKER)}\r\nContent-Length: 1000\r\n\r\n{{"
        )
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(BODIES_MAX)]
        try:
            for _, writer in opened:
                writer.write(head.encode())
            answers = asyncio.as_completed([reader.readline() for reader, _ in opened])
            async with asyncio.timeout(30):
                for _ in range(BODIES_MAX // 2):  # the other half of all is the attacker's
                    assert b" 429 " in await next(answers)
            status, found = await router.ask(token(OWNER), "/v1/chat/completions", CHAT)
            assert (status, found["error"]["code"]) == (503, "no_replica")
        finally:
            for _, writer in opened:
                writer.transport.abort()
