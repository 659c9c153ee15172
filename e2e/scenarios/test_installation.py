"""The packaged chart on a real cluster: it becomes ready, tests itself, upgrades, and keeps."""

import base64

from e2e.harness.fabric import NAMESPACE, OPERATORS, RELEASE, Fabric
from e2e.harness.kube import Kube, until


def test_the_packaged_chart_has_no_problem_and_refuses_a_misspelt_field_of_a_pool(
    fabric: Fabric,
) -> None:
    packaged = str(fabric.chart)
    assert "0 chart(s) failed" in fabric.helm("lint", "--strict", packaged).stdout
    sets = ("--set=image.registry=localhost", "--set=pools.thin.minReplica=1")
    wrong = fabric.kube.program("helm", "template", RELEASE, packaged, *sets)
    assert wrong.returncode != 0
    assert "minReplica" in wrong.stderr


def test_the_installation_answers_helm_s_test(fabric: Fabric) -> None:
    # Its CNI enforces no NetworkPolicy, which the other test of the chart finds out.
    said = fabric.helm("test", RELEASE, "--filter=name=flowmesh-test", "--timeout=600s").stdout
    assert "Succeeded" in said


def test_every_operator_is_ready_and_one_leads(fabric: Fabric) -> None:
    pods = fabric.kube.items("pods", f"--namespace={NAMESPACE}", f"--selector={OPERATORS}")
    assert len(pods) == 2
    for pod in pods:
        assert all(c["ready"] for c in pod["status"]["containerStatuses"]), pod["metadata"]["name"]
    until(lambda: reached(fabric) == [fabric.leader()], "the gateway's Service leads to the leader")


def test_workers_have_the_blob_service_in_place_of_the_bucket_s_account(fabric: Fabric) -> None:
    here = f"--namespace={NAMESPACE}"
    service = fabric.kube.get("deployment", "flowmesh-blobs", here)
    until(lambda: fabric.kube.get("deployment", "flowmesh-blobs", here)["status"].get(
        "readyReplicas") == service["spec"]["replicas"], "the blob service is ready")  # fmt: skip
    pools = fabric.kube.items("deployments", here, "--selector=app.kubernetes.io/component=worker")
    assert pools
    for found in pools:
        (worker,) = found["spec"]["template"]["spec"]["containers"]
        assert "envFrom" not in worker
        assert not any(variable["name"].startswith("AWS_") for variable in worker["env"])
        assert f"--store=https://flowmesh-blobs.{NAMESPACE}.svc:8472" in worker["args"]


def test_an_upgrade_keeps_secrets_and_brings_definitions_up_to_date(fabric: Fabric) -> None:
    names = ("flowmesh-gateway-tls", "flowmesh-master-key", "flowmesh-store-operator")
    before = {name: secret(fabric.kube, name) for name in names}
    crd = "flowmeshcachepolicies.flowmesh.dev"
    fabric.kube.run(
        "patch", "crd", crd, "--type=json",
        '--patch=[{"op": "remove", "path": "/spec/names/shortNames"}]',
    )  # fmt: skip
    fabric.install("operator.podAnnotations.upgraded=yes")
    assert {name: secret(fabric.kube, name) for name in names} == before
    assert fabric.kube.get("crd", crd)["spec"]["names"]["shortNames"]
    assert not fabric.kube.items("jobs", f"--namespace={NAMESPACE}")


def reached(fabric: Fabric) -> list[str]:
    """Returns the pods behind the gateway's Service."""
    slices = fabric.kube.items(
        "endpointslices", f"--namespace={NAMESPACE}",
        "--selector=kubernetes.io/service-name=flowmesh-gateway",
    )  # fmt: skip
    return [e["targetRef"]["name"] for s in slices for e in s["endpoints"] or []]


def secret(kube: Kube, name: str) -> dict[str, str]:
    data = kube.get("secret", name, f"--namespace={NAMESPACE}")["data"]
    return {key: base64.b64decode(value).decode("latin-1") for key, value in data.items()}
