"""The operator's settings in its environment."""

import inspect
import re
from pathlib import Path

import pytest

from flowmesh_operator.settings import SettingsError, read_settings


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "key").write_bytes(bytes(32))
    return {
        "FLOWMESH_STORE": "s3://b/p",
        "FLOWMESH_MASTER_KEY_FILE": str(tmp_path / "key"),
        "FLOWMESH_NAMESPACE": "flowmesh",
    }


def test_two_variables_suffice_and_the_rest_has_defaults(environment: dict[str, str]) -> None:
    settings = read_settings(environment, host="pod-1")
    assert (settings.store, settings.identity, settings.gateway_port) == ("s3://b/p", "pod-1", 8470)
    assert "bytes" not in repr(settings)
    assert "x00" not in repr(settings)
    assert settings.openai_engine == "llm.openai"
    assert (settings.collect_every_s, settings.store_max) == (3600.0, 0)
    bounded = environment | {"FLOWMESH_STORE_MAX": "2Gi", "FLOWMESH_RUN_DAYS": "7"}
    found = read_settings(bounded, host="pod-1")
    assert (found.store_max, found.run_days) == (2 << 30, 7)
    named = environment | {"FLOWMESH_OPENAI_ENGINE": "test.openai"}
    assert read_settings(named, host="pod-1").openai_engine == "test.openai"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"FLOWMESH_STORE": ""}, "FLOWMESH_STORE: is not set; set it to the bucket"),
        ({"FLOWMESH_MASTER_KEY_FILE": "/nowhere"}, "FLOWMESH_MASTER_KEY_FILE=/nowhere: cannot"),
        ({"FLOWMESH_GATEWAY_PORT": "http"}, "FLOWMESH_GATEWAY_PORT: 'http' is not a whole number"),
        ({"FLOWMESH_STORE_MAX": "much"}, "FLOWMESH_STORE_MAX: 'much' is not an amount of bytes"),
        ({"FLOWMESH_STORE_MAX": "0Gi"}, "FLOWMESH_STORE_MAX: 0 is not a limit"),
        ({"FLOWMESH_RESULT_DAYS": "0"}, "FLOWMESH_RESULT_DAYS: '0' is not a number of days"),
        ({"FLOWMESH_LEASE_S": "2"}, "retry < renew deadline < lease"),
        (
            {"FLOWMESH_WORKER_IMPORT_REFUSE": "34.0.0.0/8, pods"},
            "FLOWMESH_WORKER_IMPORT_REFUSE: 'pods' is not a network",
        ),
        (
            {"FLOWMESH_TLS_CERT": "/c"},
            "FLOWMESH_TLS_CERT, FLOWMESH_TLS_KEY: one of certificate and key is missing",
        ),
    ],
)
def test_invalid_settings_are_named_with_their_remedy(
    environment: dict[str, str], change: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(environment | change, host="pod-1")
    assert words in str(refused.value)
    assert refused.value.remedy


def test_a_master_key_of_another_length_is_refused(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(bytes(31))
    with pytest.raises(SettingsError, match=r"not lines of <id>:<hex> \(31 bytes\)"):
        read_settings(environment, host="pod-1")


def test_every_variable_is_documented() -> None:
    source = Path(inspect.getsourcefile(read_settings) or "").read_text()
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    read = {f"FLOWMESH_{name}" for name in re.findall(r'reader\.\w+\(\s*"([A-Z_]+)"', source)}
    assert len(read) > 20
    assert sorted(name for name in read if f"`{name}`" not in page) == []
