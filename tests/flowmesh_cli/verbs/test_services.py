"""``fmesh services`` shows replicas with the reason why each is where it is."""

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_api.v1.runs import Uploaded
from flowmesh_api.v1.services import (
    CapacityPoint,
    ComponentReasons,
    ReplicaPlacement,
    ServiceCapacity,
    ServiceCondition,
    ServiceList,
    ServiceReasons,
    ServiceReplicas,
    ServiceRequests,
    ServiceStatus,
    StageTime,
)
from flowmesh_cli import terminal
from flowmesh_cli.connection.target import HERE, Target
from flowmesh_cli.errors import CliError, FilesError
from flowmesh_cli.verbs import service_capacity, service_top, services
from flowmesh_cli.verbs.service_offers import ServeOptions, offers_of
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_sdk.local_inputs import InputUpload

EXAMPLE = Path(__file__).parents[3] / "examples" / "services" / "ask-docs.yaml"

REPLICAS = ServiceReplicas("llm", 1, 2, ("w1",), "waits for a worker of pool gpu")
CONDITION = ServiceCondition("Ready", "False", "ReplicasMissing", "waits for a worker")
STATUS = ServiceStatus(
    "ask", "team-b", "smol", "Loading", 1, 0.0, "r1", (REPLICAS,), (CONDITION,), 1_500_000_000
)


class Answering:
    """A client with one answer."""

    namespace, default_namespace = "", "team-b"

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, list[Any]()

    def get(self, path: str, kind: type, **query: Any) -> Any:
        return self._answer(path, query)

    def _answer(self, path: str, query: dict[str, Any]) -> Any:
        self.asked.append((path, query))
        return self.answer

    def ask(self, method: str, path: str, kind: type, *, query: Any, body: Any) -> Any:
        assert method == "POST"
        assert body.read()
        return self._answer(path, query)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Answering:
    found = Answering(None)

    @contextmanager
    def query_fabric(_: object) -> Any:
        yield found

    for module in (services, service_capacity, service_top):
        monkeypatch.setattr(module, "query_fabric", query_fabric)
    return found


def test_services_are_listed_with_what_is_missing(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = ServiceList((STATUS,))
    services.list_services(namespace="", place=HERE, as_json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1] == ["ask", "smol", "Loading", "1/2", "-", "$1.50", "waits", "for", "a", "worker"]
    assert client.asked == [("/v1/services", {"namespace": "team-b"})]


def test_a_service_with_stages_shows_them_in_place_of_a_model(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = msgspec.structs.replace(STATUS, model="ask", stages=("query", "hits"))
    client.answer = ServiceList((staged,))
    services.list_services(namespace="", place=HERE, as_json=False)
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert head.split()[1] == "serves"
    assert "2 stages: query, hits" in row
    client.answer = staged
    services.show_service("ask", namespace="", place=HERE, as_json=False)
    out = capsys.readouterr().out
    assert "stages     query, hits\n" in out
    assert "model" not in out


@pytest.mark.parametrize(
    ("status", "shown"), [("True", "met"), ("False", "missed"), ("Unknown", "unknown")]
)
def test_the_list_shows_whether_the_slo_is_met_and_why_not(
    status: str, shown: str, client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    condition = ServiceCondition("MeetsSlo", status, "Any", "stage rank is slow")
    client.answer = ServiceList((msgspec.structs.replace(STATUS, conditions=(condition,)),))
    services.list_services(namespace="", place=HERE, as_json=False)
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[4] == shown
    assert ("stage rank" in row) is (status == "False")


REQUESTS = ServiceRequests(
    2.0,
    came=50,
    refused=2,
    ended=48,
    missed=12,
    p50_s=0.12,
    p99_s=0.5,
    latency_s=0.4,
    miss_rate=0.05,
)


def test_the_state_has_the_requests_of_the_last_minutes(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = msgspec.structs.replace(STATUS, requests=REQUESTS)
    services.show_service("ask", namespace="", place=HERE, as_json=False)
    out = capsys.readouterr().out
    assert "2/s; in 5 minutes 50, of which 2 refused; p50 120 ms, p99 500 ms" in out
    assert "12 of 48 later than 400 ms (25.0%, 5% may)" in out


def test_the_state_has_the_streams_that_missed_a_target_of_tokens(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = {"ttft_s": 1.5, "streamed": 40, "missed_ttft": 2}
    targets |= {"tpot_s": 0.05, "token_timed": 38, "missed_tpot": 19}
    requests = msgspec.structs.replace(REQUESTS, latency_s=0.0, **targets)
    client.answer = msgspec.structs.replace(STATUS, requests=requests)
    services.show_service("ask", namespace="", place=HERE, as_json=False)
    out = capsys.readouterr().out
    assert "later than" not in out
    assert "2 of 40 streams began after 1500 ms (5.0%, 5% may)" in out
    assert "19 of 38 streams took more than 50 ms a token (50.0%, 5% may)" in out


def test_no_latency_is_shown_where_nothing_was_answered(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = ServiceRequests(0.1, came=1, ended=1)
    client.answer = msgspec.structs.replace(STATUS, requests=failed)
    services.show_service("ask", namespace="", place=HERE, as_json=False)
    points = (CapacityPoint(3.2, 0.122, 1.28, 0.035),)
    client.answer = ServiceCapacity("ask", "team-b", points, (), failed, 16.1)
    service_capacity.show_capacity("ask", namespace="", place=HERE, as_json=False)
    out = capsys.readouterr().out
    assert "in 5 minutes 1, of which 0 refused\n" in out
    assert " 0 ms" not in out


def test_a_curve_is_shown_beside_what_was_measured(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    points = (CapacityPoint(3.2, 0.122, 1.28, 0.035),)
    stages = (StageTime("rank", "second", 0.12, 2), StageTime("read", "first"))
    client.answer = ServiceCapacity("ask", "team-b", points, stages, REQUESTS, 16.1)
    service_capacity.show_capacity("ask", namespace="", place=HERE, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    assert rows[-2] == ["3.2/s", "122", "ms", "1280", "ms", "3.5%", "predicted"]
    assert rows[-1] == ["2/s", "120", "ms", "500", "ms", "25.0%", "measured"]
    assert "stage     rank: 120 ms alone, replicas: 2" in lines
    assert "stage     read: not measured yet" in lines
    assert client.asked == [("/v1/services/ask/capacity", {"namespace": "team-b"})]


def test_a_curve_that_cannot_be_made_says_why(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = ServiceCapacity("ask", "team-b", reason="too few samples: 3 replies")
    service_capacity.show_capacity("ask", namespace="", place=HERE, as_json=False)
    found = capsys.readouterr()
    assert "no capacity curve: too few samples: 3 replies" in found.err + found.out
    service_capacity.show_capacity("ask", namespace="", place=HERE, as_json=True)
    assert json.loads(capsys.readouterr().out)["reason"] == "too few samples: 3 replies"


def test_a_namespace_without_services_is_named(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = ServiceList(())
    services.list_services(namespace="other", place=HERE, as_json=False)
    assert "namespace other has no service" in capsys.readouterr().err


def test_a_service_is_shown_with_its_replicas(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = STATUS
    services.show_service("ask", namespace="", place=HERE, as_json=False)
    text = capsys.readouterr().out
    assert "llm: 1 of 2 replicas ready on w1: waits for a worker of pool gpu" in text
    assert "Ready      False, ReplicasMissing: waits for a worker" in text


def test_every_replica_is_shown_with_its_reason(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = ReplicaPlacement("placed", "has its files", "w1", "team-b/ask/llm/r1/0")
    missing = ReplicaPlacement("missing", "no worker is connected")
    component = ComponentReasons("llm", 2, 1, 4, "412/s asked", (placed, missing))
    client.answer = ServiceReasons("ask", "team-b", (component,))
    services.explain_service("ask", namespace="", place=HERE, as_json=False)
    text = capsys.readouterr().out
    assert "llm: 2 wanted, of 1 to 4 replicas: 412/s asked" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["team-b/ask/llm/r1/0", "w1", "placed", "has", "its", "files"] in rows
    assert ["-", "-", "missing", "no", "worker", "is", "connected"] in rows
    assert client.asked == [("/v1/services/ask/why", {"namespace": "team-b"})]


def test_before_a_release_there_is_nothing_to_explain(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = ServiceReasons("ask", "team-b")
    services.explain_service("ask", namespace="", place=HERE, as_json=False)
    assert "team-b/ask has no release yet" in capsys.readouterr().err


def test_the_manifest_of_a_file_is_an_object_with_the_code_of_its_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    services.print_manifest(EXAMPLE, namespace="team-a", place=HERE)
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["metadata"]["namespace"]) == ("FlowMeshService", "team-a")
    python = found["spec"]["components"]["rerank"]["python"]
    assert python == {
        "function": "best", "code": EXAMPLE.with_name("rerank.py").read_text()
    }  # fmt: skip
    service = FlowMeshService.model_validate(found)
    plan = compile_service(service, builtin_catalog(), validate_only=True)
    assert [c.name for c in plan.components] == ["embed", "search", "rerank", "writer"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A service of a folder here, whose file is elsewhere."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    component = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}
    spec = {"inputs": {"base": {"model": "./model"}}, "components": {"llm": component}}
    found = tmp_path / "ask.json"
    meta = {"name": "ask"}
    head = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshService"}
    found.write_text(json.dumps({**head, "metadata": meta, "spec": spec}))
    return found


def test_a_folder_of_a_file_is_uploaded_to_the_cluster_of_its_manifest(
    client: Answering, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = Uploaded("cas:model:abc", "model", "d" * 64, 2)
    services.print_manifest(file, namespace="team-a", place=Target(cluster=True))
    found = json.loads(capsys.readouterr().out)
    assert found["spec"]["inputs"] == {"base": {"model": "cas:model:abc"}}
    assert client.asked == [("/v1/trees", {"namespace": "team-a", "kind": "model"})]


def test_a_folder_of_a_file_without_a_cluster_is_refused(file: Path) -> None:
    with pytest.raises(CliError, match="local file") as refused:
        services.print_manifest(file, namespace="team-a", place=HERE)
    assert "--cluster" in refused.value.remedy


def test_what_a_served_file_names_here_is_uploaded_from_beside_it(file: Path) -> None:
    (offer,) = offers_of(ServeOptions((str(file),)))
    assert offer.uploads == (InputUpload("base", "model", file.parent / "model"),)
    (file.parent / "model" / "config.json").unlink()
    with pytest.raises(FilesError, match=r"ask.json:1:\d+: spec.inputs.base.model: .*config.json"):
        offers_of(ServeOptions((str(file),)))


def test_two_files_of_one_name_are_not_served_in_place_of_each_other(
    file: Path,
) -> None:
    document = json.loads(file.read_text())
    other = file.with_name("other.json")
    other.write_text(json.dumps(document))
    with pytest.raises(
        CliError, match=r"service default/ask has the same name as that of .*ask\.json"
    ):
        offers_of(ServeOptions((str(file), str(other))))
    document["metadata"]["name"] = "other"
    document["spec"]["openai"] = {"model": offers_of(ServeOptions((str(file),)))[0].entry.model}
    other.write_text(json.dumps(document))
    with pytest.raises(CliError, match=r"model .* has the same name as that of .*ask\.json"):
        offers_of(ServeOptions((str(file), str(other))))
    assert len(offers_of(ServeOptions((str(file), str(file))))) == 1


BUSY = msgspec.structs.replace(
    STATUS,
    name="busy",
    phase="Ready",
    requests=ServiceRequests(
        12.5, 60, 0, 50, 5, 0.2, 0.9, latency_s=0.5, miss_rate=0.01, p95_s=0.7, in_flight=3
    ),
    nanousd_per_hour=2_500_000_000,
)


def test_top_lists_the_busiest_service_first(
    client: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    client.answer = ServiceList((STATUS, BUSY))
    service_top.show_top(once=False, namespace="", place=HERE, as_json=False)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("service", "phase", "rate", "in", "flight", "p50", "p95", "missed", "ready", "$/h")
    ]
    assert rows[0].split() == [
        *("busy", "Ready", "12.5/s", "3", "200", "ms", "700", "ms", "10.0%", "1/2", "$2.50")
    ]
    assert rows[1].split() == ["ask", "Loading", "0/s", "0", "-", "-", "-", "1/2", "-"]
    service_top.show_top(once=True, namespace="", place=HERE, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in found["services"]] == ["busy", "ask"]


def test_on_a_terminal_top_is_drawn_again_until_ctrl_c(
    client: Answering, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.answer = ServiceList((STATUS,))
    monkeypatch.setattr(Console, "is_terminal", True)
    waits = iter((None, None))

    def sleep(_: float) -> None:
        if next(waits, "end") == "end":
            raise KeyboardInterrupt
        client.answer = ServiceList((BUSY,))

    monkeypatch.setattr(terminal.time, "sleep", sleep)
    service_top.show_top(once=False, namespace="", place=HERE, as_json=False)
    shown = capsys.readouterr().out
    assert shown.index("Loading") < shown.index("12.5/s")
    assert len(client.asked) == 3


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("ask/why", "ask%2Fwhy"),
        ("ask?all=1", "ask%3Fall%3D1"),
        ("a%2Fb", "a%252Fb"),
        ("ä b", "%C3%A4%20b"),
    ],
)
def test_a_name_is_one_segment_of_a_path(client: Answering, name: str, segment: str) -> None:
    """Else ``services show ask/why`` would ask for something else, and not understand it."""
    client.answer = STATUS
    services.show_service(name, namespace="", place=HERE, as_json=True)
    client.answer = ServiceReasons("ask", "team-b")
    services.explain_service(name, namespace="", place=HERE, as_json=True)
    client.answer = ServiceCapacity("ask", "team-b")
    service_capacity.show_capacity(name, namespace="", place=HERE, as_json=True)
    assert [path for path, _ in client.asked] == [
        f"/v1/services/{segment}{rest}" for rest in ("", "/why", "/capacity")
    ]
