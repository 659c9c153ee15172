"""The small parts of the worker: memory, energy, counters, engines."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_worker.energy import EnergyShares, RaplMeter
from flowmesh_worker.engines.registry import BUILTIN, ENGINES_GROUP, installed_engines
from flowmesh_worker.instances.host_process import host_environment
from flowmesh_worker.instances.oom import OomKills
from flowmesh_worker.settings import parse_settings

ROOT = Path(__file__).parents[2]


def test_the_registry_is_the_only_list_of_the_project_s_engines() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert ENGINES_GROUP not in declared


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_listed_class_is_in_its_module(name: str) -> None:
    module, _, attribute = BUILTIN[name].partition(":")
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    assert f"class {attribute}" in Path(found.origin).read_text()


def test_every_engine_of_the_project_has_a_contract() -> None:
    assert set(installed_engines().names()) >= set(BUILTIN)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.floats(0, 100)), max_size=40))
def test_shares_of_energy_add_up_to_power_times_busy_time(
    happenings: list[tuple[bool, int, float]],
) -> None:
    clock = Clock()
    shares = EnergyShares(None, 50.0, clock)
    running: set[str] = set()
    busy_s = total = 0.0
    for starts, number, later in happenings:
        name = str(number)
        if starts:
            shares.begin(name)
            running.add(name)
        else:
            total += shares.end(name)[0]
            running.discard(name)
        if running:
            busy_s += later
        clock.now += later
    total += sum(shares.end(n)[0] for n in list(running))
    assert total == pytest.approx(50 * busy_s)


def test_energy_is_read_from_a_meter_and_not_estimated(tmp_path: Path) -> None:
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    (package / "max_energy_range_uj").write_text("1000000000")
    (package / "energy_uj").write_text("999000000")
    meter = RaplMeter(tmp_path)
    assert meter.available
    clock = Clock()
    shares = EnergyShares(meter, 0.0, clock)
    shares.begin("a")
    clock.now = 1.0
    (package / "energy_uj").write_text("4000000")  # it has wrapped around
    assert shares.end("a") == (pytest.approx(5.0, rel=1e-3), False)


class LosableMeter:
    """A counter whose device can be lost."""

    def __init__(self) -> None:
        self.value: float | Exception = 0.0

    def joules(self) -> float:
        """The value, or the error."""
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_while_a_meter_cannot_be_read_the_last_power_is_assumed() -> None:
    meter, clock = LosableMeter(), Clock()
    shares = EnergyShares(meter, 0.0, clock)
    shares.begin("a")
    clock.now, meter.value = 1.0, 10.0
    assert shares.end("a") == (10.0, False)
    shares.begin("b")
    clock.now, meter.value = 2.0, OSError("the device is lost")
    assert shares.end("b") == (10.0, False)
    shares.begin("c")
    clock.now, meter.value = 3.0, 35.0
    assert shares.end("c") == (15.0, False)


def test_a_meter_that_cannot_be_read_at_first_is_read_later() -> None:
    meter, clock = LosableMeter(), Clock()
    meter.value = OSError("not yet")
    shares = EnergyShares(meter, 5.0, clock)
    shares.begin("a")
    clock.now, meter.value = 1.0, 1000.0
    assert shares.end("a") == (5.0, False)
    shares.begin("b")
    clock.now, meter.value = 2.0, 1010.0
    assert shares.end("b") == (10.0, False)


def test_a_machine_without_an_energy_meter_reports_none(tmp_path: Path) -> None:
    assert not RaplMeter(tmp_path).available


@pytest.mark.parametrize(
    "text",
    [
        "low 0\nhigh 0\nmax 3\noom 3\noom_kill 2\noom_group_kill 0\n",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "pgfault 77\noom_kill 2\n",
    ],
)
def test_kills_for_memory_are_counted_in_either_version_of_cgroups(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "counts"
    file.write_text(text)
    assert OomKills((tmp_path / "missing", file)).count() == 2


def test_out_of_memory_kills_can_be_counted_on_this_machine() -> None:
    assert OomKills().count() >= 0


def test_a_host_gets_threads_and_no_credentials() -> None:
    given_ = {
        "PATH": "/bin",
        "FLOWMESH_WORKER_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "HF_TOKEN": "h",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "64",
    }
    found = host_environment(given_, 3)
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert found["HF_HUB_OFFLINE"] == "1"
    assert not {"FLOWMESH_WORKER_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"} & found.keys()


def test_the_token_of_the_environment_may_end_with_a_newline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOWMESH_WORKER_TOKEN", " token\n")
    assert parse_settings(["--gateway", "ws://h:1", "--store", "s"]).read_token() == "token"


@pytest.mark.parametrize("token", ["to\nken", "to\x7fken", "to\udcffken"])
def test_a_token_with_control_characters_is_refused_with_the_name_of_its_variable(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOWMESH_WORKER_TOKEN", token)
    with pytest.raises(SystemExit):
        parse_settings(["--gateway", "ws://h:1", "--store", "s"])
    assert "FLOWMESH_WORKER_TOKEN is not a token" in capsys.readouterr().err


def test_settings_are_parsed_and_invalid_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOWMESH_WORKER_TOKEN", "from the environment")
    base = ["--gateway", "ws://h:1/", "--store", "s", "--name", "w"]
    s = parse_settings(
        [*base, "--label", "a=b", "--price-usd-per-hour", "1.5", "--memory-mib", "7"]
    )
    assert (s.gateway, s.labels, s.memory_mib) == ("ws://h:1", {"a": "b"}, 7)
    assert s.price_nanousd_per_hour == 1_500_000_000
    assert not s.price_estimated
    assert s.read_token() == "from the environment"
    token = tmp_path / "token"
    token.write_text("from the file\n")
    assert parse_settings([*base, "--token-file", str(token)]).read_token() == "from the file"
    token.write_bytes(b"a\x00token")
    with pytest.raises(OSError, match="is not a token"):
        parse_settings([*base, "--token-file", str(token)]).read_token()
    with pytest.raises(SystemExit):
        parse_settings([*base, "--label", "ab"])
    assert "'ab' is not of the form key=value" in capsys.readouterr().err
