"""Keys survive: the chart renders none, its Job creates those that are missing and changes none."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes
import pytest
import yaml
from tests.charts.rendering import CHART, REGISTRY, STORES, helm, objects, render
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_operator.bootstrap import create_missing, main, wanted_secrets

pytestmark = pytest.mark.slow

EVERYTHING = ("keda.enabled=true", "serviceMonitor.enabled=true", "alerts.enabled=true",
              "dashboards.enabled=true", "externalMetrics.enabled=true")  # fmt: skip
# An API server goes on with a policy for a moment after it is deleted, so that the policy of one
# release would refuse the pools of the next.
RELEASED = f"{REGISTRY},validatingAdmissionPolicy.enabled=false"
NAMES = (
    "flowmesh-gateway-tls",
    "flowmesh-router-tls",
    "flowmesh-master-key",
    "flowmesh-store-operator",
)


@pytest.mark.parametrize("store", STORES)
def test_the_chart_renders_the_same_every_time(store: str) -> None:
    values = (*EVERYTHING, *STORES[store])
    assert render(*values) == render(*values)


def test_the_jobs_name_changes_when_its_work_changes() -> None:
    first = the_job(objects())["metadata"]["name"]
    assert first == the_job(objects("gateway.port=9000"))["metadata"]["name"]
    for value in ("image.tag=v2", "router.tls.hosts[0]=x.example.com", "keda.enabled=true"):
        assert the_job(objects(value))["metadata"]["name"] != first, value


def test_no_secret_is_created_that_the_values_provide() -> None:
    tls = ("gateway.tls.existingSecret=a", "router.tls.existingSecret=r", *STORES["volume"])
    given = ("masterKey.existingSecret=b", *tls)
    assert all(o["metadata"]["name"] != "flowmesh-secrets" for o in objects(*given))
    only_key = objects(*tls)
    args = the_job(only_key)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == ["--namespace", "fabric", "--master-key"]


def test_applying_the_chart_and_its_job_twice_changes_no_key(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = api_server.namespace()
    seen = []
    for _ in range(2):
        rendered = render("keda.enabled=true", namespace=namespace)
        # Nothing here runs pods, and the test's Pod is helm's to create.
        api_server.kubectl("apply", "-f", "-", given=without_test(rendered))
        monkeypatch.setenv("KUBECONFIG", str(as_account(api_server, namespace, tmp_path)))
        job = the_job(list(yaml.safe_load_all(rendered)))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["python", "-m", "flowmesh_operator.bootstrap"]
        assert main(container["args"]) == 0
        seen.append(kept(api_server, namespace))
    assert set(seen[0]) == {*NAMES, "flowmesh-keda", "flowmesh-keda-pair"}
    assert seen[0] == seen[1]
    # The next version: Jobs cannot be changed, so theirs have other names.
    later = render("keda.enabled=true", "image.tag=v2", namespace=namespace)
    api_server.kubectl("apply", "-f", "-", given=without_test(later))
    assert kept(api_server, namespace) == seen[0]
    every_secret_that_a_pod_names_is_there(list(yaml.safe_load_all(rendered)), set(seen[0]))
    api_server.kubectl("delete", "--wait=false", "-f", "-", given=without_test(later))


def test_an_upgrade_does_not_replace_a_master_key_that_is_missing(
    api_server: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the rights of the Job's own account alone, also where it makes no other Secret."""
    namespace = api_server.namespace()
    only_key = ("gateway.tls.existingSecret=a", "router.tls.existingSecret=r", *STORES["volume"])
    values = (*only_key, "masterKey.loseResults=true")
    made = list(yaml.safe_load_all(render(*values, namespace=namespace)))
    rights = [o for o in made if o and o["metadata"]["name"] == "flowmesh-secrets"]
    api_server.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(rights))
    monkeypatch.setenv("KUBECONFIG", str(as_account(api_server, namespace, tmp_path)))
    args = the_job(made)["spec"]["template"]["spec"]["containers"][0]["args"]
    usual = [word for word in args if word != "--lose-results"]
    assert len(usual) < len(args)
    assert main(usual) == 0
    before = kept(api_server, namespace)
    api_server.kubectl("delete", "secret", "flowmesh-master-key", "-n", namespace)
    assert main(usual) == 1
    assert "is missing, and the store's records are sealed with it" in capsys.readouterr().err
    assert kept(api_server, namespace) == {}
    assert main(args) == 0
    assert kept(api_server, namespace).keys() == before.keys()
    assert kept(api_server, namespace) != before


def test_a_release_that_made_its_secrets_itself_is_upgraded_and_keeps_them(
    api_server: ApiServer, tmp_path: Path
) -> None:
    namespace = api_server.namespace()
    earlier = tmp_path / "flowmesh"
    (earlier / "templates").mkdir(parents=True)
    (earlier / "Chart.yaml").write_text("apiVersion: v2\nname: flowmesh\nversion: 0.0.9\n")
    theirs = [name for name in NAMES if name != "flowmesh-router-tls"]
    made = {name: {"key": f"of {name}"} for name in (*theirs, "flowmesh-other")}
    (earlier / "templates" / "secrets.yaml").write_text(
        yaml.safe_dump_all(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
            for name, data in made.items()
        )
    )
    release = ["flowmesh", "--namespace", namespace, f"--kubeconfig={api_server.kubeconfig}"]
    helm("install", *release, str(earlier))
    assert set(kept(api_server, namespace)) == set(made)
    for _ in range(2):
        # The hooks' Jobs would never end: nothing here runs pods.
        helm("upgrade", *release, str(CHART), "--set", RELEASED, "--no-hooks")
        now = kept(api_server, namespace)
        assert now == {name: {"key": f"of {name}".encode()} for name in theirs}
    said = helm("uninstall", *release, "--no-hooks").stdout
    assert set(kept(api_server, namespace)) == set(theirs), said


def test_an_upgrade_replaces_the_s3_server_after_a_change_of_its_account_alone(
    api_server: ApiServer,
) -> None:
    """Also where the installation's Job makes the account, after the chart was rendered."""
    namespace = api_server.namespace()
    chart = [str(CHART), f"--kubeconfig={api_server.kubeconfig}", "--set", RELEASED, "--no-hooks"]
    release = ["flowmesh", "--namespace", namespace, *chart]

    def account() -> str:
        deployment = api_server.get("deployment", "flowmesh-store", "-n", namespace)
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["flowmesh.dev/account"])

    helm("install", *release)
    rendered = [account()]
    for change in ("the Job", "nothing", "the user", "nothing", "a deletion", "the Job"):
        if change == "the Job":
            make_account(api_server, namespace)
        elif change == "the user":
            data = {"stringData": {"AWS_SECRET_ACCESS_KEY": "another"}}
            words = ("patch", "secret", "flowmesh-store-operator", "-n", namespace)
            api_server.kubectl(*words, "--type=merge", f"--patch={json.dumps(data)}")
        elif change == "a deletion":
            api_server.kubectl("delete", "secret", "flowmesh-store-operator", "-n", namespace)
        helm("upgrade", *release)
        rendered.append(account())
    helm("uninstall", "flowmesh", "--namespace", namespace, *chart[1:2], "--no-hooks")
    made, upgraded, again, rotated, kept_rotated, deleted, _ = rendered
    assert made == upgraded == again
    assert rotated != made
    assert kept_rotated == rotated
    assert deleted not in (made, rotated)


def make_account(api_server: ApiServer, namespace: str) -> None:
    """What the Job does between the rendering and the end of an installation."""
    wanted = wanted_secrets(
        hosts=(), router_hosts=(), days=1, master_key=False, store=True, keda=False
    )
    client = kubernetes.config.new_client_from_config(str(api_server.kubeconfig))
    list(create_missing(kubernetes.client.CoreV1Api(client), namespace, list(wanted)))


def the_job(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [
        o for o in rendered
        if o and o["kind"] == "Job" and o["metadata"]["name"].startswith("flowmesh-secrets-")
    ]  # fmt: skip
    return found


def without_test(rendered: str) -> str:
    documents = [o for o in yaml.safe_load_all(rendered) if o and o["kind"] != "Pod"]
    return yaml.safe_dump_all(documents)


def kept(api_server: ApiServer, namespace: str) -> dict[str, dict[str, bytes]]:
    found = api_server.get("secrets", "-n", namespace)["items"]
    return {
        o["metadata"]["name"]: {k: base64.b64decode(v) for k, v in o.get("data", {}).items()}
        for o in found
        if not o["type"].startswith("helm.sh/")
    }


def as_account(api_server: ApiServer, namespace: str, folder: Path) -> Path:
    """A kubeconfig file of the Job's service account, which has the chart's rights alone."""
    token = api_server.kubectl("create", "token", "flowmesh-secrets", "-n", namespace).stdout
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    file = folder / "account.kubeconfig"
    file.write_text(json.dumps(config))
    return file


def every_secret_that_a_pod_names_is_there(rendered: list[dict[str, Any]], names: set[str]) -> None:
    def walk(value: Any, seen: Callable[[str], None]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "secretName":
                    seen(inner)
                elif key in ("secretRef", "secretKeyRef"):
                    seen(inner["name"])
                else:
                    walk(inner, seen)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, seen)

    found: set[str] = set()
    for made in rendered:
        if made and made["kind"] == "Deployment":
            walk(made["spec"]["template"], found.add)
    assert found
    assert found <= names
