"""Users and their rights, checked by a real API server."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer
from tests.flowmesh_operator.user_roles import EDIT, LOOK, grant, grant_everywhere, revoke

from flowmesh_control.auth.users import Resource, User, Verb
from flowmesh_control.errors import AuthorizationUnavailableError
from flowmesh_operator.access import users as module
from flowmesh_operator.access.users import ReviewedUsers
from flowmesh_operator.kube.client import KubeClient

pytestmark = pytest.mark.slow

WORKFLOWS, POOLS, METRICS = Resource.WORKFLOWS, Resource.POOLS, Resource.METRICS


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    configuration = Configuration()
    await config.load_kube_config(str(api_server.kubeconfig), client_configuration=configuration)
    async with ApiClient(configuration) as client:
        yield KubeClient(client).with_single_try(4.0)


async def known(users: ReviewedUsers, token: str) -> User:
    user = await users.user_of(token)
    assert user is not None
    return user


async def test_two_users_have_the_permissions_of_their_roles_in_two_namespaces(
    api: KubeClient, api_server: ApiServer
) -> None:
    a, b, own = (api_server.namespace() for _ in range(3))
    grant(api_server, "ada", a, EDIT)
    grant(api_server, "ben", b, LOOK)
    users = ReviewedUsers(api, namespace=own)
    ada, ben = [await known(users, api_server.token_of(name)) for name in ("ada", "ben")]
    assert (ada.name, ben.name) == ("ada", "ben")
    assert "system:authenticated" in ada.groups
    rights = {
        (user.name, verb, namespace)
        for user in (ada, ben)
        for verb in (Verb.LIST, Verb.CREATE)
        for namespace in (a, b, "")
        if await users.may(user, verb, WORKFLOWS, namespace)
    }
    assert rights == {("ada", "list", a), ("ada", "create", a), ("ben", "list", b)}


async def test_pools_are_checked_in_the_operators_namespace_and_metrics_as_a_path(
    api: KubeClient, api_server: ApiServer
) -> None:
    own, other = api_server.namespace(), api_server.namespace()
    grant(api_server, "ada", own, LOOK, "flowmeshworkerpools.flowmesh.dev")
    grant(api_server, "ben", other, LOOK, "flowmeshworkerpools.flowmesh.dev")
    users = ReviewedUsers(api, namespace=own)
    ada, ben = [await known(users, api_server.token_of(name)) for name in ("ada", "ben")]
    assert await users.may(ada, Verb.LIST, POOLS)
    assert not await users.may(ben, Verb.LIST, POOLS)
    assert not await users.may(ada, Verb.UPDATE, POOLS)
    assert not await users.may(ada, Verb.GET, METRICS)
    grant_everywhere(api_server, "ben", "get", "--non-resource-url=/metrics")
    assert await users.may(ben, Verb.GET, METRICS)
    admin = await known(users, api_server.token_of("admin"))
    assert await users.may(admin, Verb.LIST, WORKFLOWS)


async def test_a_token_is_valid_with_the_audience_of_the_api_server_or_of_flowmesh(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    users = ReviewedUsers(api, namespace="flowmesh")
    api_server.kubectl("create", "serviceaccount", "ci", "-n", namespace)
    names = []
    for audience in ([], ["--audience=flowmesh"], ["--audience=another"]):
        words = ("create", "token", "ci", "-n", namespace, *audience)
        user = await users.user_of(api_server.kubectl(*words).stdout.strip())
        names.append(user and user.name)
    account = f"system:serviceaccount:{namespace}:ci"
    assert names == [account, account, None]
    assert await users.user_of("nobody's") is None
    assert await users.user_of("\udcff") is None  # a byte that is no text


async def test_concurrent_requests_share_one_token_review(
    api: KubeClient, api_server: ApiServer
) -> None:
    users = ReviewedUsers(api, namespace="flowmesh")
    token = api_server.token_of("ada")
    found = await asyncio.gather(*(users.user_of(token) for _ in range(50)))
    user = found[0]
    assert user is not None
    assert set(found) == {user}
    await asyncio.gather(*(users.may(user, Verb.GET, WORKFLOWS, "default") for _ in range(50)))
    assert api.requests["create", "tokenreviews"] == 1
    assert api.requests["create", "subjectaccessreviews"] == 1


async def test_a_revoked_permission_ends_when_its_cached_review_expires(
    api: KubeClient, api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "YES_S", 0.5)
    monkeypatch.setattr(module, "NO_S", 0.1)
    users = ReviewedUsers(api, namespace="flowmesh")
    ada = await known(users, api_server.token_of("ada"))
    binding = grant(api_server, "ada", namespace, LOOK)
    assert await users.may(ada, Verb.GET, WORKFLOWS, namespace)
    revoke(api_server, binding, namespace)
    end = time.monotonic() + 20
    while await users.may(ada, Verb.GET, WORKFLOWS, namespace):
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_while_the_api_server_is_unavailable_no_user_is_admitted(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    grant(api_server, "ada", namespace, EDIT)
    users = ReviewedUsers(api, namespace="flowmesh")
    ada = await known(users, api_server.token_of("ada"))
    with api_server.away():
        for asked in (
            users.user_of(api_server.token_of("ben")),
            users.may(ada, Verb.CREATE, WORKFLOWS, namespace),
        ):
            with pytest.raises(AuthorizationUnavailableError) as refused:
                await asked
            assert refused.value.retry_after_s > 0
    assert await users.may(ada, Verb.CREATE, WORKFLOWS, namespace)
