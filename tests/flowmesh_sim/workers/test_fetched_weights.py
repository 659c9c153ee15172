"""Weights that a simulated worker fetches: how long runs wait for them, and what the bound says."""

import pytest

from flowmesh_sim.models.download_rates import UNLIMITED
from flowmesh_sim.paper.measure import Figures, measure
from flowmesh_sim.scenario import scenario_of

AT_ONCE = {"provisioning.pod_s": 0.0, "provisioning.lease_s": 0.0}


def cold_run(start: str, facts: dict[str, float]) -> Figures:
    """One chain of two models, 8B first, on a pool that begins without workers."""
    pool = {"name": "gpu", "device": "h100", "workers": 0, "maximum": 1, "autoscale": True}
    document = {
        "name": "cold",
        "pools": [{**pool, "start": start}],
        "load": [{"shapes": ["a-chain"], "runs": 1, "rows": 24}],
        "facts": {**AT_ONCE, **facts},
    }
    return measure(scenario_of(document), 1)


def test_weights_from_the_store_keep_a_run_waiting_for_as_long_as_eight_connections_take() -> None:
    waited_s = cold_run("pod", {})["latency_s"] - cold_run("pod", UNLIMITED)["latency_s"]
    # 16.06 GB at 700 MB/s, of which a part overlaps with the start of a standby host.
    assert 5.0 < waited_s < 30.0


def test_a_leased_machine_waits_for_weights_as_long_as_its_slower_network_takes() -> None:
    waited_s = cold_run("lease", {})["latency_s"] - cold_run("pod", {})["latency_s"]
    # The 8B model alone; the chain's smaller one comes while the first steps run, or is waited for.
    assert waited_s > 16.06e9 / 134e6 - 16.06e9 / 700e6


@pytest.mark.parametrize("start", ["pod", "lease"])
@pytest.mark.parametrize(
    "facts",
    [
        {},
        UNLIMITED,
        {"network.connection_bytes_per_s": 1e7},
        {"network.leased_bytes_per_s": 5e9, "network.datacenter_bytes_per_s": 1e8},
    ],
    ids=["shipped", "unlimited", "slow connections", "leases are faster"],
)
def test_no_simulated_worker_has_its_weights_sooner_than_the_bound(
    start: str, facts: dict[str, float]
) -> None:
    figures = cold_run(start, facts)
    assert 0.0 < figures["bound_latency_s"] <= figures["latency_s"]
