"""The scenarios that the agent's effects are recorded for: written ones, and random ones."""

from tests.golden.agent.format import Scenario
from tests.golden.agent.random_scenarios import random_scenario
from tests.golden.agent.written import (
    cancelling,
    forgetting,
    instances,
    leaving,
    memory,
    prewarming,
    replicas,
    reporting,
    results,
    sleeping,
    standby_hosts,
)

SEEDS = range(50)
_WRITTEN = (cancelling, instances, leaving, memory, prewarming, reporting, results, standby_hosts)


def all_scenarios() -> list[Scenario]:
    """Returns every scenario, the written ones first."""
    written = [scenario for about in _WRITTEN for scenario in about.scenarios()]
    return [*written, *(random_scenario(seed) for seed in SEEDS)]


def new_scenarios() -> list[Scenario]:
    """Returns the scenarios of what the agent could not do before it became one machine."""
    return [*forgetting.scenarios(), *replicas.scenarios(), *sleeping.scenarios()]
