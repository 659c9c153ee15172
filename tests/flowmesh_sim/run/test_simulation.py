"""A scenario runs to its end, and equal seeds give equal simulations."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowmesh_sim.run.simulation import Simulation, simulate
from flowmesh_sim.scenario import Scenario, scenario_of

ROOT = Path(__file__).parents[3]


def noops(**changes: Any) -> Scenario:
    document = {
        "name": "no-ops",
        "pools": [{"name": "small", "device": "cpu", "workers": 2}],
        "load": [{"shapes": ["noop-flat", "noop-chain", "noop-diamond", "map-stream"], "runs": 8}],
    }
    return scenario_of({**document, **changes})


def test_every_run_ends_and_every_action_runs_once() -> None:
    simulation = Simulation(noops())
    result = simulation.run()
    assert (result.runs, result.succeeded) == (8, 8)
    published = simulation.fabric.store.published
    assert len(published) == len(set(published))
    assert result.executed <= len(published)
    assert result.usd == pytest.approx(result.receipts_usd + result.fabric_usd)


def test_a_pool_of_too_little_trust_makes_nothing_for_a_shared_scope() -> None:
    pools = [
        {"name": "any", "device": "cpu", "workers": 2, "trust": 0},
        {"name": "own", "device": "cpu", "workers": 1},
    ]
    shared = Simulation(noops(pools=pools, sharing="all"))
    assert shared.run().succeeded == 8
    assert {r.provenance.pool for r in shared.fabric.store.results.values()} <= {"own", ""}
    alone = Simulation(noops(pools=pools, sharing="private"))
    assert alone.run().succeeded == 8
    assert "any" in {r.provenance.pool for r in alone.fabric.store.results.values()}


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    first, again, other = simulate(noops()), simulate(noops()), simulate(noops(), seed=1)
    assert first.trace == again.trace
    assert first.makespan_s == again.makespan_s
    assert other.trace != first.trace


def test_the_trace_does_not_depend_on_how_the_process_hashes_strings() -> None:
    code = (
        "from flowmesh_sim.scenario import read_scenario; from pathlib import Path;"
        "from flowmesh_sim.run.simulation import simulate;"
        "print(simulate(read_scenario(Path('examples/simulate/no-ops.yaml'))).trace)"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1
    assert len(found.pop()) == 64


def test_the_hash_of_a_trace_is_that_of_its_file(tmp_path: Path) -> None:
    from blake3 import blake3

    path = tmp_path / "trace.jsonl"
    result = simulate(noops(), trace=path)
    data = path.read_bytes()
    assert blake3(data).hexdigest() == result.trace
    assert data.count(b"\n") > result.executed


def test_a_fault_can_target_the_busiest_worker() -> None:
    document = {
        "name": "busiest",
        "pools": [{"name": "p", "device": "cpu", "workers": 6}],
        "load": [{"shapes": ["noop-flat"], "runs": 1, "rows": 1, "options": {"seconds": 60.0}}],
    }
    calm = simulate(scenario_of(document))
    crash = {"kind": "crash", "atS": 20, "busiest": True}
    for seed in range(3):
        struck = simulate(scenario_of({**document, "faults": [crash]}), seed=seed)
        assert struck.makespan_s > calm.makespan_s + 15.0, "its work began anew"
