"""A service is found in any namespace of a laptop, and in the chosen one of a cluster."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from flowmesh_api.v1.services import ServiceList, ServiceStatus, ServiceTokenList
from flowmesh_cli.connection.service_lookup import find_service
from flowmesh_cli.connection.target import HERE
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.verbs import service_capacity, service_top, services, tokens

ALL = ("/v1/services", {"all_namespaces": True})


def status(name: str, namespace: str) -> ServiceStatus:
    return ServiceStatus(name, namespace, "smol", "Ready", 1, 0.0, "r1", (), (), 0)


class Laptop:
    """A client of a laptop's fabric, which has no namespace of its own."""

    namespace, default_namespace = "", ""

    def __init__(self, *known: ServiceStatus) -> None:
        self.known, self.asked = known, list[Any]()

    def get(self, path: str, kind: type, **query: Any) -> Any:
        self.asked.append((path, query))
        if kind is ServiceList:
            return ServiceList(self.known)
        if kind is ServiceTokenList:
            return ServiceTokenList(())
        raise CliError("shown elsewhere", ExitCode.FAILED)


class Cluster(Laptop):
    """A client of a cluster, whose context has a namespace."""

    namespace, default_namespace = "team-b", "team-b"


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> Laptop:
    found = Laptop(status("smol", "team-a"), status("twin", "team-a"), status("twin", "team-b"))

    @contextmanager
    def query_fabric(_: object) -> Any:
        yield found

    for module in (services, service_capacity, service_top, tokens):
        monkeypatch.setattr(module, "query_fabric", query_fabric)
    return found


def test_the_one_service_of_a_name_is_found_in_any_namespace(laptop: Laptop) -> None:
    assert find_service(laptop, "", "smol") == "team-a"
    assert laptop.asked == [ALL]


def test_a_given_namespace_is_used_without_a_look_up(laptop: Laptop) -> None:
    assert find_service(laptop, "team-c", "smol") == "team-c"
    assert laptop.asked == []


def test_the_namespace_of_a_cluster_is_used_without_a_look_up() -> None:
    cluster = Cluster()
    assert find_service(cluster, "", "smol") == "team-b"
    assert cluster.asked == []


def test_several_services_of_a_name_are_told_apart_by_their_namespaces(laptop: Laptop) -> None:
    with pytest.raises(CliError, match="2 namespaces have a service 'twin'") as caught:
        find_service(laptop, "", "twin")
    assert caught.value.remedy == "choose one: -n team-a or -n team-b"


def test_an_unknown_service_suggests_a_similar_one(laptop: Laptop) -> None:
    with pytest.raises(CliError, match="no service 'smoll' in any namespace; did you") as caught:
        find_service(laptop, "", "smoll")
    assert caught.value.code is ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        (services.show_service, "/v1/services/smol"),
        (services.explain_service, "/v1/services/smol/why"),
        (service_capacity.show_capacity, "/v1/services/smol/capacity"),
    ],
)
def test_every_verb_finds_it(verb: Callable[..., None], path: str, laptop: Laptop) -> None:
    with pytest.raises(CliError, match="shown elsewhere"):
        verb("smol", namespace="", place=HERE, as_json=False)
    assert laptop.asked == [ALL, (path, {"namespace": "team-a"})]


def test_tokens_are_those_of_the_service_that_is_found(laptop: Laptop) -> None:
    tokens.show_tokens("smol", namespace="", place=HERE, as_json=False)
    assert laptop.asked == [ALL, ("/v1/services/smol/tokens", {"namespace": "team-a"})]


@pytest.mark.parametrize("verb", ["list", "top"])
def test_a_table_of_all_services_has_their_namespaces(
    verb: str, laptop: Laptop, capsys: pytest.CaptureFixture[str]
) -> None:
    if verb == "list":
        services.list_services(namespace="", place=HERE, as_json=False)
    else:
        service_top.show_top(once=True, namespace="", place=HERE, as_json=False)
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert rows[:2] == [["namespace", "service"], ["team-a", "smol"]]
    assert ["team-b", "twin"] in rows
    assert laptop.asked == [ALL]


def test_an_empty_laptop_says_so(laptop: Laptop, capsys: pytest.CaptureFixture[str]) -> None:
    laptop.known = ()
    services.list_services(namespace="", place=HERE, as_json=False)
    assert capsys.readouterr().err == "there are no services\n"
