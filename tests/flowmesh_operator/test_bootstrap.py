"""Secrets of an installation: those that are missing are created, and none is ever changed."""

import base64
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kubernetes
import pytest
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_control.auth.master_key import decode_ring
from flowmesh_operator.bootstrap import (
    BootstrapError,
    RequiredSecret,
    create_missing,
    main,
    wanted_secrets,
)

pytestmark = pytest.mark.slow

HOSTS = ("flowmesh-gateway.fabric.svc", "localhost")
ROUTERS = ("flowmesh-router.fabric.svc",)
NAMES = (
    "flowmesh-master-key", "flowmesh-gateway-tls", "flowmesh-router-tls",
    "flowmesh-store-operator", "flowmesh-keda-pair",
)  # fmt: skip


def everything() -> list[RequiredSecret]:
    return list(
        wanted_secrets(
            hosts=HOSTS, router_hosts=ROUTERS, days=30, master_key=True, store=True, keda=True
        )
    )


def contents(api_server: ApiServer, namespace: str) -> dict[str, dict[str, bytes]]:
    found = api_server.get("secrets", "-n", namespace)["items"]
    return {
        o["metadata"]["name"]: {k: base64.b64decode(v) for k, v in o["data"].items()} for o in found
    }


@pytest.fixture
def api(api_server: ApiServer) -> kubernetes.client.CoreV1Api:
    client = kubernetes.config.new_client_from_config(str(api_server.kubeconfig))
    return kubernetes.client.CoreV1Api(client)


def test_a_second_bootstrap_changes_nothing(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api
) -> None:
    namespace = api_server.namespace()
    said = list(create_missing(api, namespace, everything()))
    assert said == [f"Secret {name} was created" for name in NAMES]
    made = contents(api_server, namespace)
    assert set(made) == set(NAMES)
    ring = decode_ring(made["flowmesh-master-key"]["master-key"], where="")
    assert [key_id for key_id, _ in ring.secrets] == ["00"]
    said = list(create_missing(api, namespace, everything()))
    assert said == [f"Secret {name} exists and is not changed" for name in NAMES]
    assert contents(api_server, namespace) == made


def test_only_what_is_missing_is_made(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api
) -> None:
    namespace = api_server.namespace()
    list(create_missing(api, namespace, everything()))
    made = contents(api_server, namespace)
    api_server.kubectl("delete", "secret", "flowmesh-gateway-tls", "-n", namespace)
    list(create_missing(api, namespace, everything()))
    now = contents(api_server, namespace)
    assert now.pop("flowmesh-gateway-tls") != made.pop("flowmesh-gateway-tls")
    assert now == made


@pytest.mark.parametrize("others", ["with the other Secrets", "alone"])
def test_a_master_key_that_was_made_before_is_not_replaced(
    api_server: ApiServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    others: str,
) -> None:
    namespace = api_server.namespace()
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    job = ["--namespace", namespace, "--master-key"]
    job += ["--store", "--host", HOSTS[0]] if others != "alone" else []
    assert main(job) == 0
    made = contents(api_server, namespace)
    api_server.kubectl("delete", "secret", "flowmesh-master-key", "-n", namespace)
    for _ in range(2):
        assert main(job) == 1
    said = capsys.readouterr().err
    assert f"Secret {namespace}/flowmesh-master-key: is missing" in said
    assert "exec deploy/flowmesh-operator -- cat" in said
    assert "masterKey.loseResults=true" in said
    now = contents(api_server, namespace)
    assert now == {name: data for name, data in made.items() if name != "flowmesh-master-key"}
    assert main([*job, "--lose-results"]) == 0
    assert contents(api_server, namespace)["flowmesh-master-key"] != made["flowmesh-master-key"]
    assert main(job) == 0


def test_a_key_of_an_earlier_release_is_recorded_and_then_not_replaced_either(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api
) -> None:
    namespace = api_server.namespace()
    words = ("create", "secret", "generic", "flowmesh-master-key", "-n", namespace)
    api_server.kubectl(*words, "--from-literal=master-key=00:" + "ab" * 32)
    only_key = [s for s in everything() if s.name == "flowmesh-master-key"]
    list(create_missing(api, namespace, only_key))
    api_server.kubectl("delete", "secret", "flowmesh-master-key", "-n", namespace)
    with pytest.raises(BootstrapError, match="is missing"):
        list(create_missing(api, namespace, everything()))
    assert contents(api_server, namespace) == {}


def test_secrets_of_others_are_no_sign_of_an_earlier_installation(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api
) -> None:
    namespace = api_server.namespace()
    words = ("create", "secret", "generic", "flowmesh-store-operator", "-n", namespace)
    api_server.kubectl(
        *words, "--from-literal=AWS_ACCESS_KEY_ID=a", "--from-literal=AWS_SECRET_ACCESS_KEY=b"
    )
    list(create_missing(api, namespace, everything()))
    assert set(contents(api_server, namespace)) == set(NAMES)


def test_of_concurrent_jobs_the_first_wins_and_all_agree(api_server: ApiServer) -> None:
    namespace, jobs = api_server.namespace(), 4
    together = threading.Barrier(jobs)

    def job(_: int) -> list[str]:
        client = kubernetes.config.new_client_from_config(str(api_server.kubeconfig))
        together.wait()
        return list(create_missing(kubernetes.client.CoreV1Api(client), namespace, everything()))

    with ThreadPoolExecutor(jobs) as pool:
        said = [line for lines in pool.map(job, range(jobs)) for line in lines]
    for name in NAMES:
        assert said.count(f"Secret {name} was created") == 1


def test_a_secret_that_lacks_a_key_is_named_and_not_changed(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api
) -> None:
    namespace = api_server.namespace()
    api_server.kubectl("create", "secret", "generic", "flowmesh-master-key", "-n", namespace)
    with pytest.raises(BootstrapError, match="lacks master-key") as caught:
        list(create_missing(api, namespace, everything()))
    assert caught.value.where == f"Secret {namespace}/flowmesh-master-key"
    assert set(api_server.get("secrets", "-n", namespace)["items"][0]) >= {"metadata"}
    assert len(api_server.get("secrets", "-n", namespace)["items"]) == 1  # nothing half done


def test_a_missing_permission_is_reported_with_the_role(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = api_server.namespace()
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig_of("ben")))
    assert main(["--namespace", namespace, "--master-key"]) == 1
    said = capsys.readouterr().err
    assert f"Secret {namespace}/flowmesh-master-key" in said
    assert "cannot read it" in said
    assert "Role flowmesh-secrets" in said
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    assert main(["--namespace", namespace, "--master-key"]) == 0


def test_a_missing_api_server_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["--namespace", "x", "--master-key"]) == 1
    assert "nor a kubeconfig" in capsys.readouterr().err


def test_a_strict_client_trusts_the_certificate_under_each_of_its_names(
    api_server: ApiServer, api: kubernetes.client.CoreV1Api, tmp_path: Path
) -> None:
    namespace = api_server.namespace()
    list(create_missing(api, namespace, everything()))
    made = contents(api_server, namespace)["flowmesh-gateway-tls"]
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in (*HOSTS, "127.0.0.1"):
        handshake(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client, "elsewhere.svc")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Runs a TLS handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
