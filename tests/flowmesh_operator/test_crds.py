"""Updates of the definitions on a real API server, as by the chart's hook."""

from pathlib import Path

import kubernetes
import pytest
import yaml
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_operator.crds import DefinitionsError, apply_definitions, main

pytestmark = pytest.mark.slow

NAME = "tests.example.flowmesh.dev"


def definition(field: str) -> str:
    schema = {"type": "object", "properties": {field: {"type": "string"}}}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    return yaml.safe_dump(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": NAME},
            "spec": {
                "group": "example.flowmesh.dev",
                "scope": "Namespaced",
                "names": {"kind": "Test", "plural": "tests"},
                "versions": [version],
            },
        }
    )


@pytest.fixture
def api(api_server: ApiServer) -> kubernetes.client.ApiextensionsV1Api:
    client = kubernetes.config.new_client_from_config(str(api_server.kubeconfig))
    return kubernetes.client.ApiextensionsV1Api(client)


def test_missing_definitions_are_created_and_those_applied_by_helm_are_updated(
    api_server: ApiServer, api: kubernetes.client.ApiextensionsV1Api, tmp_path: Path
) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(definition("old"))
    api_server.kubectl("apply", "--server-side", "--field-manager=helm", "-f", str(file))
    file.write_text(definition("new"))
    assert apply_definitions(api, tmp_path) == [NAME]
    (version,) = api_server.get("crd", NAME)["spec"]["versions"]
    assert list(version["schema"]["openAPIV3Schema"]["properties"]) == ["new"]
    api_server.kubectl("delete", "crd", NAME)
    assert apply_definitions(api, tmp_path) == [NAME]  # made, and served when this returns
    api_server.kubectl("get", "tests.example.flowmesh.dev")
    api_server.kubectl("delete", "crd", NAME)


def test_without_a_folder_the_definitions_of_this_release_are_applied(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    assert main([]) == 0
    assert "flowmeshworkflows.flowmesh.dev is up to date" in capsys.readouterr().out


def test_a_refusal_by_the_api_server_is_reported_in_its_words(
    api: kubernetes.client.ApiextensionsV1Api, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(definition("a").replace("scope: Namespaced", "scope: Nowhere"))
    with pytest.raises(DefinitionsError, match="Nowhere"):
        apply_definitions(api, tmp_path)


def test_a_folder_without_definitions_is_named(
    tmp_path: Path, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    assert main([str(tmp_path)]) == 1
    assert "contains no definitions" in capsys.readouterr().err
    (tmp_path / "x.yaml").write_text("kind: ConfigMap\n")
    assert main([str(tmp_path)]) == 1
    assert "is not a CustomResourceDefinition" in capsys.readouterr().err
