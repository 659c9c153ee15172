"""Renders the chart with helm."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster import tools
from e2e.cluster.paths import BINS

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "flowmesh"
NAMESPACE = "fabric"
REGISTRY = "image.registry=registry.example.com"
"""Without it the chart renders nothing."""
STORES: dict[str, tuple[str, ...]] = {
    "versitygw": (),
    "s3": ("store.type=s3", "store.s3.url=s3://bucket/prefix?region=eu-central-1"),
    "volume": ("store.type=volume", "store.volume.existingClaim=shared"),
}
"""The three ways to store, as values."""


def helm(*words: str, ok: bool = True) -> "subprocess.CompletedProcess[str]":
    try:
        tools.build_helm(BINS)
    except tools.ToolsError as e:
        pytest.fail(f"no helm to test with; `make tools` builds it: {e}")
    done = subprocess.run(
        [str(BINS / "helm"), *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert not ok or done.returncode == 0, done.stderr
    return done


def render(*values: str, namespace: str = NAMESPACE) -> str:
    sets = [word for value in (REGISTRY, *values) for word in ("--set", value)]
    return helm("template", "flowmesh", str(CHART), "--namespace", namespace, *sets).stdout


def objects(*values: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(render(*values)) if found]


def find(kind: str, name: str, *values: str) -> dict[str, Any]:
    for found in objects(*values):
        if (found["kind"], found["metadata"]["name"]) == (kind, name):
            return found
    raise AssertionError(f"no {kind} {name}")


def pod_specs(*values: str) -> dict[str, dict[str, Any]]:
    """Returns the specification of every pod of the chart, by kind and name."""
    found: dict[str, dict[str, Any]] = {}
    for made in objects(*values):
        kind, name = made["kind"], made["metadata"]["name"]
        if kind in ("Deployment", "Job"):
            found[f"{kind} {name}"] = made["spec"]["template"]["spec"]
        elif kind == "Pod":
            found[f"{kind} {name}"] = made["spec"]
    return found
