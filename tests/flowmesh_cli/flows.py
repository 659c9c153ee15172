"""Small workflows on data engines, as files."""

import json
from pathlib import Path
from typing import Any

import orjson

API = "flowmesh.dev/v1alpha1"


def write(folder: Path, name: str, spec: dict[str, Any], namespace: str = "team-a") -> Path:
    """Writes a workflow (JSON is YAML)."""
    path = folder / f"{name}.yaml"
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": API, "kind": "FlowMeshWorkflow", "metadata": metadata, "spec": spec}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return path


def policy(folder: Path, *namespaces: str) -> Path:
    """Writes a cache policy under which some namespaces share."""
    path = folder / "policy.yaml"
    spec = {"scope": "group", "group": "friends", "namespaces": {"names": list(namespaces)}}
    document = {
        "apiVersion": API,
        "kind": "FlowMeshCachePolicy",
        "metadata": {"name": "friends"},
        "spec": spec,
    }
    path.write_text(json.dumps(document))
    return path


def questions(folder: Path, rows: int = 40) -> None:
    """Writes ``questions.jsonl``; half of the rows contain their answer."""
    lines = (json.dumps({"question": str(i), "target": str(i % (rows // 2))}) for i in range(rows))
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")


def scored() -> dict[str, Any]:
    """Returns a workflow that reads ``./questions.jsonl``, answers in SQL and scores."""
    query = "select question, target, question as answer from rows order by all"
    return {
        "params": {"limit": 3},
        "inputs": {"questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            {
                "name": "reply",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.questions"},
                "with": {"query": query},
            },
            {
                "name": "score",
                "uses": "eval.exact-match",
                "inputs": {"rows": "reply.rows"},
                "with": {"prediction": "answer", "target": "target"},
            },
        ],
        "outputs": {"answers": "reply.rows", "accuracy": "score.metrics"},
    }


def sleeping(seconds: float, value: str = "") -> dict[str, Any]:
    """Returns a workflow that does some work, then sleeps."""
    return {
        "steps": [
            {"name": "first", "uses": "test.noop", "with": {"value": value or str(seconds)}},
            {
                "name": "rest",
                "uses": "test.sleep",
                "inputs": {"after": "first.metrics"},
                "with": {"seconds": seconds, "value": value},
            },
        ],
        "outputs": {"value": "rest.metrics"},
    }
