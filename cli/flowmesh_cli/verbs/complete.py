"""The names that a shell completes: runs, their steps and outputs, and engines."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_core.catalog.plugins import load_catalog

Given = Mapping[str, Any]
"""Arguments and options of the line so far."""


def runs(given: Given) -> list[str]:
    """Returns names and uids of runs, the latest first."""
    with query_fabric(_target(given)) as http:
        latest = all_runs(http)[::-1]
    return list(dict.fromkeys([run.name for run in latest] + [run.uid for run in latest]))


def steps(given: Given) -> list[str]:
    """Returns the steps of the run that is named before them, or of the latest one."""
    return [step.path for step in _run(given).steps]


def runs_and_steps(given: Given) -> list[str]:
    """Returns the steps of the latest run, and the runs."""
    return [*steps({**given, "named": ""}), *runs(given)]


def runs_and_outputs(given: Given) -> list[str]:
    """Returns the runs, and the outputs of the latest one."""
    latest = _run({**given, "run": ""})
    return [*runs(given), *(f"{latest.name}/{name}" for name in latest.outputs)]


def engines(given: Given) -> list[str]:
    """Returns the names of the engines of this installation."""
    del given
    return load_catalog().names()


def _run(given: Given) -> RunStatus:
    with query_fabric(_target(given)) as http:
        uid = find_run(http, given.get("named") or given.get("run") or "")
        return http.get(f"/v1/runs/{uid}", RunStatus)


def _target(given: Given) -> Target:
    options = {field.name: given.get(field.name) for field in dataclasses.fields(Target)}
    return Target(**{name: value for name, value in options.items() if value})
