"""The chart: what it renders, what it refuses, and that a real API server takes all of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.charts.rendering import (
    CHART,
    NAMESPACE,
    REGISTRY,
    ROOT,
    STORES,
    find,
    helm,
    objects,
    pod_specs,
    render,
)
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.pools.objects import WANTED_METRIC
from flowmesh_operator.settings import read_settings
from flowmesh_serving.router.settings import parse_settings
from flowmesh_store.s3.location import parse_location
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow


def test_helm_lint_finds_no_problem_in_the_chart() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


@pytest.mark.parametrize("store", STORES)
def test_a_real_api_server_accepts_every_object_without_a_warning(
    api_server: ApiServer, store: str
) -> None:
    namespace = watched(api_server)
    rendered = render(*STORES[store], namespace=namespace)
    done = api_server.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=rendered
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len([x for x in yaml.safe_load_all(rendered) if x])


def test_the_pod_security_check_reports_a_violation(api_server: ApiServer) -> None:
    namespace = watched(api_server)
    rendered = render(namespace=namespace).replace("allowPrivilegeEscalation: false", "")
    done = api_server.kubectl(
        "apply", "--server-side", "--dry-run=server", "-f", "-", given=rendered
    )
    assert "violate PodSecurity" in done.stderr


@pytest.mark.parametrize("store", STORES)
def test_every_container_has_a_read_only_root_and_declares_resource_requests(store: str) -> None:
    for name, spec in pod_specs(*STORES[store]).items():
        assert spec["securityContext"]["runAsNonRoot"], name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"], name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name


def test_only_the_operator_and_the_jobs_hold_an_account_s_token() -> None:
    holders = {
        name.rpartition("-")[0] if name.startswith("Job") else name
        for name, spec in pod_specs().items()
        if spec.get("automountServiceAccountToken") is not False
    }
    assert holders == {
        "Deployment flowmesh-operator", "Job flowmesh-crds", "Job flowmesh-secrets",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["image.registry="], "image.registry is not set, and no images are published"),
        (["store.type=s3"], "store.s3.url is not set, and store.type is s3"),
        (["store.type=volume"], "store.volume.existingClaim is not set, and store.type is volume"),
        (["store.type=tape"], "/store/type"),
        (["operator.replica=3"], "'replica' not allowed"),
        (["operator.replicas=0"], "/operator/replicas"),
        (["pools.Big.minReplicas=1"], "Big"),
        (["pools.cpu.minReplica=1"], "'minReplica' not allowed"),
        (["pools.cpu.engines.flavour=thin"], "'flavour' not allowed"),
        (["pools.cpu.autoscaling.scaleDown=5s"], "'scaleDown' not allowed"),
        (["pools.cpu.maxReplicas=many"], "/pools/cpu/maxReplicas"),
        (["store.s3.url=https://bucket"], "/store/s3/url"),
        (["clusterRanges.pods={10.0.0.0}"], "/clusterRanges/pods/0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_values_are_refused_by_name(values: list[str], said: str) -> None:
    sets = [word for value in (REGISTRY, *values) for word in ("--set", value)]
    done = helm("template", "x", str(CHART), *sets, ok=False)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("store", ["versitygw", "s3"])
def test_the_rendered_store_address_can_be_opened(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    address = environment(*STORES[store])["FLOWMESH_STORE"]
    open_store(address).close()


def test_the_s3_server_serves_more_than_one_request_a_connection() -> None:
    (container,) = find("Deployment", "flowmesh-store")["spec"]["template"]["spec"]["containers"]
    assert "--keep-alive" in container["args"]


def test_operator_and_blob_service_have_the_bucket_s_credentials_and_workers_none() -> None:
    for name in ("flowmesh-operator", "flowmesh-blobs"):
        (container,) = find("Deployment", name)["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "flowmesh-store-operator"}}]
    env = environment()
    assert env["FLOWMESH_WORKER_BLOB_SERVICE"] == "https://flowmesh-blobs.fabric.svc:8472"
    assert not any(name.startswith("FLOWMESH_WORKER_STORE_SECRET") for name in env)
    service = find("Service", "flowmesh-blobs")["spec"]
    labels = find("Deployment", "flowmesh-blobs")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert [port["port"] for port in service["ports"]] == [8472]
    job = next(o for o in objects() if o["metadata"]["name"].startswith("flowmesh-secrets-"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "flowmesh-blobs.fabric.svc" in container["args"], "a name of the certificate"


def test_everyone_who_talks_to_a_bucket_trusts_its_private_authority() -> None:
    endpoint = "store.s3.url=s3://b/p?endpoint=https://s3.example.com"
    values = ("store.type=s3", endpoint, "store.s3.caSecret=bucket-ca")
    for name in ("flowmesh-operator", "flowmesh-blobs"):
        pod = find("Deployment", name, *values)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        set_ = {item["name"]: item.get("value", "") for item in container["env"]}
        location = parse_location(set_["FLOWMESH_STORE"])
        assert location.endpoint == "https://s3.example.com"
        (volume,) = [v for v in pod["volumes"] if v["name"] == "store-ca"]
        assert volume["secret"]["secretName"] == "bucket-ca"
        (mount,) = [m for m in container["volumeMounts"] if m["name"] == "store-ca"]
        assert location.ca == f"{mount['mountPath']}/ca.crt"
    assert environment(*values)["FLOWMESH_WORKER_STORE_CA_SECRET"] == "bucket-ca"


@pytest.mark.parametrize("name", ["flowmesh-operator", "flowmesh-blobs"])
def test_a_process_with_the_bucket_s_account_follows_its_secret(name: str) -> None:
    pod = find("Deployment", name)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "store-account"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "store-account"]
    set_ = {item["name"]: item.get("value", "") for item in container["env"]}
    assert set_["FLOWMESH_STORE_ACCOUNT_DIR"] == mount["mountPath"]
    assert [{"secretRef": {"name": volume["secret"]["secretName"]}}] == container["envFrom"]


def test_a_store_that_is_a_volume_has_no_blob_service() -> None:
    names = {o["metadata"]["name"] for o in objects(*STORES["volume"])}
    assert "flowmesh-blobs" not in names
    assert "FLOWMESH_WORKER_BLOB_SERVICE" not in environment(*STORES["volume"])


def test_the_blob_service_reads_its_settings_as_the_chart_writes_them(tmp_path: Path) -> None:
    (container,) = find("Deployment", "flowmesh-blobs")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "flowmesh_operator.blob_service"]
    env = {e["name"]: str(e["value"]) for e in container["env"]}
    key = tmp_path / "master-key"
    key.write_bytes(b"k" * 32)
    settings = read_settings({**env, "FLOWMESH_MASTER_KEY_FILE": str(key)}, host="pod")
    assert settings.store == env["FLOWMESH_STORE"]
    (port,) = container["ports"]
    assert settings.blob_service_port == port["containerPort"]


def test_a_router_reads_its_settings_as_the_chart_writes_them() -> None:
    (container,) = pod_specs()["Deployment flowmesh-router"]["containers"]
    settings = parse_settings(container["args"])
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {
        "requests": settings.port, "hubs": settings.hubs_port, "probes": settings.probe_port,
    }  # fmt: skip
    assert settings.control == f"https://flowmesh-gateway.{NAMESPACE}.svc:8470"
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    for file in (settings.tls_cert, settings.control_ca, settings.token):
        assert file is not None
        assert str(file.parent) in mounts


def test_operator_and_routers_agree_on_addresses_and_certificates() -> None:
    (operator,) = pod_specs()["Deployment flowmesh-operator"]["containers"]
    given = {e["name"]: e.get("value", "") for e in operator["env"]}
    host, _, port = given["FLOWMESH_ROUTER_HUBS"].removeprefix("tls:").rpartition(":")
    service = find("Service", host.partition(".")[0])
    assert service["spec"]["clusterIP"] == "None"
    ports = {p["name"]: p["port"] for p in service["spec"]["ports"]}
    assert ports["hubs"] == int(port)
    jobs = [spec for name, spec in pod_specs().items() if "flowmesh-secrets" in name]
    args = jobs[0]["containers"][0]["args"]
    assert host in args
    assert given["FLOWMESH_ROUTER_URL"].split("/")[2].partition(":")[0] in args
    (mounted,) = [v for v in pod_specs()["Deployment flowmesh-operator"]["volumes"]
                  if v["name"] == "router-ca"]  # fmt: skip
    assert mounted["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_prometheus_finds_the_routers_by_a_port_of_their_pods() -> None:
    monitor = find("ServiceMonitor", "flowmesh-router", "serviceMonitor.enabled=true")
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    (port,) = [e["port"] for e in monitor["spec"]["endpoints"]]
    service = find("Service", "flowmesh-router-hubs")
    assert selected <= service["metadata"]["labels"].items()
    (target,) = [p["targetPort"] for p in service["spec"]["ports"] if p["name"] == port]
    (container,) = pod_specs()["Deployment flowmesh-router"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["port"] == target
    (listens,) = [a for a in container["args"] if a.startswith("--probe-port=")]
    assert listens == f"--probe-port={ports[target]}"
    clients = find("Service", "flowmesh-router")["spec"]["ports"]
    assert port not in [p["name"] for p in clients], "clients do not reach the metrics"


def test_prometheus_shows_the_gateway_a_token_of_its_own() -> None:
    """OpenShift refuses a bearerTokenFile, which is a file of Prometheus' own pod."""
    values = ("serviceMonitor.enabled=true",)
    (endpoint,) = find("ServiceMonitor", "flowmesh", *values)["spec"]["endpoints"]
    assert "bearerTokenFile" not in endpoint
    given = endpoint["authorization"]["credentials"]
    secret = find("Secret", given["name"], *values)
    assert (secret["type"], given["key"]) == ("kubernetes.io/service-account-token", "token")
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert find("ServiceAccount", account, *values)
    bound = find("ClusterRoleBinding", account, *values)
    assert [s["name"] for s in bound["subjects"]] == [account]
    role = find("ClusterRole", bound["roleRef"]["name"], *values)
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_runbooks_are_addresses_below_the_given_one() -> None:
    values = ("alerts.enabled=true", "alerts.docs=https://wiki.example.com/flowmesh")
    (group,) = find("PrometheusRule", "flowmesh", *values)["spec"]["groups"]
    found = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in group["rules"]}
    assert found == {"https://wiki.example.com/flowmesh/observability.md"}


def test_the_operator_collects_as_the_values_say_and_the_blob_service_knows_the_grace() -> None:
    values = ("collection.storeMax=500Gi", "collection.graceSeconds=7200", "collection.runDays=7")
    (operator,) = pod_specs(*values)["Deployment flowmesh-operator"]["containers"]
    (blobs,) = pod_specs(*values)["Deployment flowmesh-blobs"]["containers"]
    given = {e["name"]: e.get("value") for e in operator["env"]}
    assert given["FLOWMESH_COLLECT_EVERY_S"] == "3600"
    assert given["FLOWMESH_STORE_MAX"] == "500Gi"
    assert (given["FLOWMESH_RESULT_DAYS"], given["FLOWMESH_RUN_DAYS"]) == ("30", "7")
    assert given["FLOWMESH_COLLECT_GRACE_S"] == "7200"
    assert {"name": "FLOWMESH_COLLECT_GRACE_S", "value": "7200"} in blobs["env"]


def test_without_routers_nothing_of_them_is_rendered() -> None:
    def names(*values: str) -> set[str]:
        return {o["metadata"]["name"] for o in objects(*values)}

    routers = {"flowmesh-router", "flowmesh-router-hubs"}
    assert routers <= names()
    assert not routers & names("router.enabled=false", "serviceMonitor.enabled=true")
    (operator,) = pod_specs("router.enabled=false")["Deployment flowmesh-operator"]["containers"]
    assert not [e for e in operator["env"] if "ROUTER" in e["name"]]


def test_without_secrets_a_bucket_is_reached_with_the_service_accounts_credentials() -> None:
    (container,) = find("Deployment", "flowmesh-operator", *STORES["s3"])["spec"]["template"][
        "spec"
    ]["containers"]
    assert "envFrom" not in container


def test_workers_refuse_the_configured_cluster_ranges() -> None:
    def told(*values: str) -> dict[str, str]:
        found = find("Deployment", "flowmesh-operator", *values)
        [container] = found["spec"]["template"]["spec"]["containers"]
        return {e["name"]: e.get("value", "") for e in container["env"]}

    named = told(
        "clusterRanges.pods={34.118.224.0/20,2600:1900::/64}", "clusterRanges.nodes={35.0.0.0/8}"
    )
    name = "FLOWMESH_WORKER_IMPORT_REFUSE"
    assert named[name] == "34.118.224.0/20,2600:1900::/64,35.0.0.0/8"
    assert name not in told()


def test_the_gateway_s_service_selects_the_leader_among_the_operator_s_pods() -> None:
    selector = find("Service", "flowmesh-gateway")["spec"]["selector"]
    labels = find("Deployment", "flowmesh-operator")["spec"]["template"]["metadata"]["labels"]
    assert selector.pop("flowmesh.dev/leader") == "true"
    assert selector.items() <= labels.items()
    assert "flowmesh.dev/leader" not in labels


def test_a_pools_image_follows_its_flavor_unless_the_pool_sets_one() -> None:
    def spec(*values: str) -> dict[str, Any]:
        made = find("FlowMeshWorkerPool", "small", "image.tag=1.2", *values)
        FlowMeshWorkerPool.model_validate(made)
        found: dict[str, Any] = made["spec"]
        return found

    thin = spec("pools.small.engines.flavor=thin", "image.registry=example.com/team")
    assert thin["image"] == "example.com/team/flowmesh-worker:1.2-thin"
    assert (
        spec("pools.small.devices.count=1")["image"]
        == "registry.example.com/flowmesh-worker:1.2-gpu"
    )
    own = spec("pools.small.image=mine:3", "pools.small.maxReplicas=7")
    assert (own["image"], own["maxReplicas"]) == ("mine:3", 7)


def test_the_default_pools_are_valid() -> None:
    pools = [o for o in objects() if o["kind"] == "FlowMeshWorkerPool"]
    assert pools
    for pool in pools:
        assert FlowMeshWorkerPool.model_validate(pool).spec.min_replicas == 0


def test_an_uninstall_keeps_results_and_removes_no_key() -> None:
    kept = {
        (o["kind"], o["metadata"]["name"])
        for o in objects()
        if (o["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {("PersistentVolumeClaim", "flowmesh-store")}
    # The key is no object of the chart's: nothing removes what its Job creates.
    assert all(o["kind"] != "Secret" for o in objects())


def test_no_rule_reads_secrets_or_config_maps_of_users() -> None:
    for made in objects("keda.enabled=true"):
        if made["kind"] in ("ClusterRole", "Role"):
            for rule in made["rules"]:
                if made["metadata"]["name"] == "flowmesh-secrets":
                    assert made["kind"] == "Role"
                    assert rule["resources"] in (["secrets"], ["configmaps"])
                    assert rule["verbs"] == ["create"] or rule["resourceNames"], rule
                    continue
                assert not {"secrets", "configmaps", "*"} & set(rule.get("resources", ())), made
                assert "*" not in rule["verbs"], made


def test_the_chart_contains_the_generated_custom_resource_definitions() -> None:
    shipped = {p.name: p.read_text() for p in (CHART / "crds").glob("*.yaml")}
    assert shipped == {p.name: p.read_text() for p in (ROOT / "crds").glob("*.yaml")}
    carried = find("ConfigMap", "flowmesh-crds")["data"]
    assert carried == shipped
    named = find("ClusterRole", "flowmesh-crds")["rules"][1]["resourceNames"]
    assert sorted(named) == sorted(yaml.safe_load(x)["metadata"]["name"] for x in shipped.values())


def test_the_values_for_kind_install_images_that_were_loaded_into_the_node() -> None:
    values = ROOT / "examples" / "kubernetes" / "kind-values.yaml"
    rendered = helm("template", "flowmesh", str(CHART), "--values", str(values)).stdout
    made = [found for found in yaml.safe_load_all(rendered) if found]
    (pool,) = [found for found in made if found["kind"] == "FlowMeshWorkerPool"]
    FlowMeshWorkerPool.model_validate(pool)
    assert pool["spec"]["engines"] == {"flavor": "thin"}
    (operator,) = [o for o in made if o["metadata"]["name"] == "flowmesh-operator"
                   and o["kind"] == "Deployment"]  # fmt: skip
    for container in operator["spec"]["template"]["spec"]["containers"]:
        assert container["image"].startswith("docker.io/library/flowmesh-operator:")
        assert container["imagePullPolicy"] == "Never"


def watched(api_server: ApiServer) -> str:
    """A namespace that warns of pods not restricted, with what a controller makes in it."""
    namespace = api_server.namespace({"pod-security.kubernetes.io/warn": "restricted"})
    api_server.kubectl("create", "serviceaccount", "default", "-n", namespace)
    return namespace


def environment(*values: str) -> dict[str, str]:
    (container,) = find("Deployment", "flowmesh-operator", *values)["spec"]["template"]["spec"][
        "containers"
    ]
    return {item["name"]: item.get("value", "") for item in container["env"]}


def test_the_adapter_rules_define_the_metric_that_pool_autoscalers_query() -> None:
    made = find("ConfigMap", "flowmesh-external-metrics", "externalMetrics.enabled=true")
    (rule,) = yaml.safe_load(made["data"]["config.yaml"])["externalRules"]
    assert rule["name"]["as"] == WANTED_METRIC
    assert WANTED_METRIC in rule["seriesQuery"]
    assert all(found["metadata"]["name"] != "flowmesh-external-metrics" for found in objects())


def test_keda_gets_a_token_that_reads_metrics_and_nothing_else(api_server: ApiServer) -> None:
    namespace = watched(api_server)
    rendered = render("keda.enabled=true", namespace=namespace)
    done = api_server.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=rendered
    )
    assert done.stderr == ""
    secret = find("Secret", "flowmesh-keda", "keda.enabled=true")
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    (subject,) = find("ClusterRoleBinding", "flowmesh-keda", "keda.enabled=true")["subjects"]
    assert subject["name"] == account
    (rule,) = find("ClusterRole", "flowmesh-keda", "keda.enabled=true")["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    assert environment("keda.enabled=true")["FLOWMESH_KEDA_SECRET"] == "flowmesh-keda"
    assert "FLOWMESH_KEDA_SECRET" not in environment()
    assert all(found["metadata"]["name"] != "flowmesh-keda" for found in objects())
