"""The chart on a real cluster: it becomes ready, tests itself and upgrades; names what it keeps."""

import base64

from e2e.harness.fabric import NAMESPACE, OPERATORS, RELEASE, Fabric
from e2e.harness.kube import Kube, until


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


def test_workers_credentials_open_nothing_but_content(fabric: Fabric) -> None:
    worker = secret(fabric.kube, "flowmesh-store-worker")
    done = in_operator(
        fabric, _AS_WORKER, worker["AWS_ACCESS_KEY_ID"], worker["AWS_SECRET_ACCESS_KEY"]
    )
    assert done.split() == ["put", "allowed", "records", "AccessDenied", "list", "AccessDenied"]


def test_an_upgrade_keeps_secrets_and_brings_definitions_up_to_date(fabric: Fabric) -> None:
    names = ("flowmesh-gateway-tls", "flowmesh-master-key", "flowmesh-store-operator",
             "flowmesh-store-worker", "flowmesh-store-accounts")  # fmt: skip
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


def in_operator(fabric: Fabric, script: str, *words: str) -> str:
    return fabric.kube.run(
        "exec", f"--namespace={NAMESPACE}", fabric.leader(), "--container=operator", "--",
        "python", "-c", script, *words,
    )  # fmt: skip


def secret(kube: Kube, name: str) -> dict[str, str]:
    data = kube.get("secret", name, f"--namespace={NAMESPACE}")["data"]
    return {key: base64.b64decode(value).decode("latin-1") for key, value in data.items()}


_AS_WORKER = """
import os, sys, boto3
from botocore.exceptions import ClientError
from flowmesh_store.s3.location import parse_location
where = parse_location(os.environ["FLOWMESH_STORE"])
s3 = boto3.client("s3", endpoint_url=where.endpoint, region_name=where.region,
                  aws_access_key_id=sys.argv[1], aws_secret_access_key=sys.argv[2])
def said(call, **words):
    try:
        call(Bucket=where.bucket, **words)
    except ClientError as e:
        return e.response["Error"]["Code"]
    return "allowed"
print("put", said(s3.put_object, Key=where.key("cas/e2e"), Body=b"x"))
print("records", said(s3.put_object, Key=where.key("runs/e2e"), Body=b"x"))
print("list", said(s3.list_objects_v2))
"""
