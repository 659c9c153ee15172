"""Jobs for driver.py, shared by the tests of both implementations."""

from typing import Any

PROMPTS = [f"the fox {'jumps over ' * (i % 5)}the dog {i}" for i in range(24)]


def job(model: Any, *batches: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    signature = {"implementation": "vllm", "dtype": "auto", "batchInvariant": True}
    return {
        "engine": "flowmesh_worker.engines.llm.generate:LlmGenerate",
        "model": str(model),
        "batches": batches,
        **changes,
        "signature": {**signature, **changes.get("signature", {})},
    }


def action(*prompts: str, **more: Any) -> dict[str, Any]:
    """Returns an action that completes each prompt; ``_`` marks fields other than parameters."""
    own = {k[1:]: v for k, v in more.items() if k.startswith("_")}
    params = {k: v for k, v in more.items() if not k.startswith("_")}
    given = {"prompt": "{{ p }}", "maxTokens": 16, "seed": 7, **params}
    if "messages" in params:
        del given["prompt"]
    return {"rows": [{"p": p} for p in prompts], "params": given, **own}


def mixed(prompts: list[str]) -> list[dict[str, Any]]:
    """Returns one action for each prompt, with different sampling parameters in turn."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 1.2, "topP": 0.9},
        {"temperature": 0.9, "topK": 20},
        {"temperature": 1.1, "minP": 0.05},
    ]
    return [action(p, **ways[i % len(ways)]) for i, p in enumerate(prompts)]


def completions(answers: list[dict[str, Any]]) -> list[str]:
    return [row["completion"] for a in answers for row in a["rows"]]
