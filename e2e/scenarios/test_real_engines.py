"""Real vLLM and real TRL in pods of the full worker image.

Their results are those of a local run, OpenAI's own client runs a batch on them, and a training of
minutes keeps its worker.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness import own_cluster
from e2e.harness.client_pod import ClientPod, give_client
from e2e.harness.downloads import digests
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Json, condition, until
from e2e.harness.laptop import Laptop
from e2e.harness.pools import pool
from e2e.harness.timeline import Joined, Timeline, pod_parts
from e2e.harness.user import User

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

WORKFLOWS = Path(__file__).parents[1] / "workflows"
BATCH_CLIENT = Path(__file__).parents[1] / "harness" / "batch_client.py"
POOL = "full"
IMAGE = "FLOWMESH_E2E_FULL_IMAGE"
"""Names the image on a cluster of yours."""
LAPTOP = "FLOWMESH_E2E_LAPTOP"
"""A folder that keeps the laptop's runs for another time."""
USER = 10001
WITHIN_S = 600.0
TRAINING, BOUND, LABELS = "training", 3, {"for": "training"}
STEPS = 100
"""Of the optimizer, as train.yaml says."""
SHORT, ROWS = 24, 150_000_000
ENGINES = {"generate": ("sample", "llm.generate"), "tune": ("sft", "train.sft")}


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory, print_line: Callable[[str], None]) -> Laptop:
    """Returns a laptop that has run both workflows."""
    kept = os.environ.get(LAPTOP)
    made = Laptop(Path(kept) if kept else tmp_path_factory.mktemp("laptop"))
    start = time.monotonic()
    runs = made.run([WORKFLOWS / f"{name}.yaml" for name in ENGINES])
    print_line(f"both workflows on this machine: {time.monotonic() - start:.0f} s")
    assert [run["phase"] for run in runs] == ["Succeeded", "Succeeded"]
    return made


@pytest.fixture(scope="module")
def image(fabric: Fabric) -> str:
    """Returns the worker image with every engine, loaded for pods."""
    del fabric  # its cluster gets the image
    return os.environ.get(IMAGE) or own_cluster.load_full()


@pytest.fixture(scope="module")
def full_pool(fabric: Fabric, image: str) -> Iterator[str]:
    """Yields a pool of at most one worker, with every engine."""
    autoscaling = {"targetBacklog": "60s", "scaleDownAfter": "60s"}
    with pool(fabric, POOL, pool_spec(image, maxReplicas=1, autoscaling=autoscaling)) as name:
        yield name


@pytest.fixture(scope="module")
def user(fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Returns a user of one namespace: the second workflow finds the imported model there."""
    namespace = f"engines-{os.getpid()}"
    fabric.kube.namespace(namespace)
    made = User(fabric, namespace, tmp_path_factory.mktemp("user"))
    made.begin()
    yield made
    fabric.kube.run("delete", "namespace", namespace, "--wait=false")


@pytest.mark.parametrize("name", list(ENGINES))
def test_outputs_equal_those_of_a_laptop_run(
    laptop: Laptop, user: User, full_pool: str, print_line: Callable[[str], None], name: str
) -> None:
    fabric, team = user.fabric, user.namespace
    line = Timeline(fabric.kube.kubeconfig)
    line.follow_workflows(team, steps_of(name))
    line.follow_pods(NAMESPACE, pod_parts(full_pool))
    line.start()
    file = WORKFLOWS / f"{name}.yaml"
    fabric.kube.run("apply", f"--filename={file}", f"--namespace={team}")
    line.mark("applied")
    fabric.completed(team, name, WITHIN_S)
    line.end()
    (worker,) = fabric.workers(full_pool)
    print_line(f"{name}: " + ", ".join(f"{k} {v:.1f} s" for k, v in line.marks().items()))
    step, engine = ENGINES[name]
    (attempt,) = user.answer("why", step, "--run", name)["attempts"]
    print_line(
        f"{engine} in the pod: loaded in {attempt['load_s']:.1f} s, ran {attempt['run_s']:.1f} s"
    )
    assert attempt["worker"] == worker["metadata"]["name"]
    assert_confined(fabric, worker)

    to = user.folder / "outputs" / name
    user.answer("outputs", name, "--download", str(to))
    here, there = laptop.outputs(name), digests(to)
    print_line("\n".join(f"{name}/{file} sha256 {digest}" for file, digest in there.items()))
    assert there
    assert there == here


def test_openais_client_runs_a_batch_through_the_gateway(
    user: User, full_pool: str, image: str, print_line: Callable[[str], None]
) -> None:
    """The client runs in a pod, with a token of Kubernetes, and reads its files of results."""
    fabric, team = user.fabric, user.namespace
    token = fabric.kube.run(
        "create", "token", "user", f"--namespace={team}", "--audience=flowmesh"
    ).strip()
    give_client(fabric, team, BATCH_CLIENT, "flowmesh-gateway-tls", name="batch")
    pod = ClientPod(fabric, team, "batch")
    start = time.monotonic()
    requests = "\n".join(json.dumps(line) for line in batch_lines())
    pod.start(image, [requests], {"TOKEN": token, "FABRIC": NAMESPACE}, files="batch")
    found = pod.result(WITHIN_S)
    print_line(f"a batch by OpenAI's client: {time.monotonic() - start:.1f} s")
    assert found["status"] == "completed", found
    assert found["counts"] == {"total": 3, "completed": 2, "failed": 1}
    answers = {line["custom_id"]: line["response"] for line in found["output"]}
    assert sorted(answers) == ["first", "second"], "each once"
    assert len(found["output"]) == 2
    texts = set()
    for answer in answers.values():
        assert answer["status_code"] == 200
        texts.add(answer["body"]["choices"][0]["message"]["content"])
        assert answer["body"]["usage"]["completion_tokens"] > 0
    assert len(texts) == 1, "one question at temperature 0"
    (wrong,) = found["errors"]
    assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("wrong", 400)
    (worker,) = fabric.workers(full_pool)
    assert_confined(fabric, worker)


def test_the_pool_shrinks_to_zero_workers(
    user: User, full_pool: str, print_line: Callable[[str], None]
) -> None:
    fabric = user.fabric
    took = until(lambda: not fabric.workers(full_pool), "the pool shrinks to no worker", 180)
    print_line(f"back to zero {took:.1f} s after the last check")


def test_a_worker_in_training_stays_while_idle_workers_are_removed(
    user: User, image: str, print_line: Callable[[str], None]
) -> None:
    fabric, team = user.fabric, user.namespace
    line = Timeline(fabric.kube.kubeconfig)
    line.follow_pods(NAMESPACE, Joined(TRAINING))
    spec = pool_spec(
        image,
        maxReplicas=BOUND,
        labels=LABELS,
        autoscaling={"targetBacklog": "10s", "scaleDownAfter": "5s"},
    )
    with pool(fabric, TRAINING, spec):
        line.start()
        file = WORKFLOWS / "train.yaml"
        fabric.kube.run("apply", f"--filename={file}", f"--namespace={team}")
        until(lambda: trains(fabric, team), "the training runs", 120)
        line.mark("training runs")
        fabric.submit(team, "short", {"steps": [query(n) for n in range(SHORT)]})
        until(lambda: len(stay(fabric)) == BOUND, "the pool is at its bound", 120)
        line.mark("pool at its bound")
        fabric.completed(team, "short", WITHIN_S)
        line.mark("short ones complete")
        until(lambda: len(stay(fabric)) == 1, "idle workers go", 120)
        line.mark("one worker left")
        (busy,) = stay(fabric)
        assert trains(fabric, team), "it ended before the others went"
        fabric.completed(team, "train", WITHIN_S)
        line.mark("training complete")
        assert stay(fabric) == [busy]
        until(lambda: not fabric.workers(TRAINING), "the last worker goes", 180)
        line.mark("none left")
    line.end()
    print_line("training: " + ", ".join(f"{k} {v:.1f} s" for k, v in line.marks().items()))
    (attempt,) = user.answer("why", "sft", "--run", "train")["attempts"]
    print_line(f"the training ran {attempt['run_s']:.1f} s in one attempt")
    assert attempt["worker"] == busy
    to = user.folder / "outputs" / "train"
    user.answer("outputs", "train", "--download", str(to))
    assert json.loads((to / "metrics.json").read_text())["steps"] == STEPS


def batch_lines() -> list[Json]:
    """Returns two equal requests, and one with an unknown parameter."""
    body = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Name a city in France."}],
        "temperature": 0,
        "max_tokens": 8,
    }
    bodies = {"first": body, "second": body, "wrong": {**body, "temprature": 1}}
    return [
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": one}
        for name, one in bodies.items()
    ]


def pool_spec(image: str, **more: Any) -> Json:
    """Returns workers with every engine: two threads, and a request that fits the node."""
    limits = {"cpu": "2", "memory": "8Gi"}
    requests = {"cpu": "400m", "memory": "2Gi"}
    worker = {"name": "worker", "resources": {"limits": limits, "requests": requests}}
    return {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "engines": {"flavor": "cpu"},
        "resources": {"cpu": 2, "memory": "8Gi"},
        "podTemplate": {"spec": {"containers": [worker]}},
        "price": {"usdPerHour": "0.20"},
        "cache": {"sizeLimit": "6Gi"},
        "drainGrace": "10s",
        **more,
    }


def query(number: int) -> dict[str, Any]:
    """Returns a step of one CPU second; a worker runs one at a time."""
    text = f"select max(hash(i) % 1000) as most from range({ROWS + number}) t(i)"
    return {"name": f"q{number}", "uses": "data.sql", "with": {"query": text},
            "resources": {"labels": LABELS}}  # fmt: skip


def trains(fabric: Fabric, team: str) -> bool:
    """Returns whether the training itself runs, not the steps before it."""
    steps = fabric.status(team, "train").get("steps") or []
    return any(step.get("uses") == "train.sft" and step["state"] == "RUNNING" for step in steps)


def stay(fabric: Fabric) -> list[str]:
    """Returns the pool's workers that are not being deleted."""
    metas = [worker["metadata"] for worker in fabric.workers(TRAINING)]
    return sorted(meta["name"] for meta in metas if "deletionTimestamp" not in meta)


def assert_confined(fabric: Fabric, worker: Json) -> None:
    """Checks that steps ran without root, on a read-only root file system."""
    name = worker["metadata"]["name"]
    script = "id -u; touch /opt/x 2>&1 | grep -o 'Read-only file system'"
    said = fabric.kube.run(
        "exec", f"--namespace={NAMESPACE}", name, "--container=worker", "--", "sh", "-c", script
    )
    assert said.split("\n", 1) == [str(USER), "Read-only file system\n"]
    (state,) = worker["status"]["containerStatuses"]
    assert state["restartCount"] == 0


def steps_of(name: str) -> Callable[[Timeline, Json], None]:
    """Marks the phases of a workflow and of its engine's step."""
    engine = ENGINES[name][1]

    def seen(line: Timeline, found: Json) -> None:
        if found["metadata"]["name"] != name:
            return
        if condition(found, "Accepted").get("status") == "True":
            line.mark("accepted")
        for step in (found.get("status") or {}).get("steps") or []:
            if step["state"] == "RUNNING":
                line.mark("first step running")
                if step.get("uses") == engine:
                    line.mark(f"{engine} running")
        if condition(found, "Complete").get("status") == "True":
            line.mark("complete")

    return seen
