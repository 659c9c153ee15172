"""Answers a file of OpenAI's Batch API with vLLM's own command, to compare with ours."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]


def vllm_run_batch(
    model: Path,
    lines: Sequence[Line],
    folder: Path,
    *,
    context: int = 512,
    kv_cache_mib: int = 64,
) -> dict[str, dict[str, Any]]:
    """Returns the responses' bodies by custom id, as ``vllm run-batch`` writes them.

    Args:
        model: its directory.
        lines: of the input file; the name of their model is left out.
        folder: for both files.
        context: the longest prompt with its answer, in tokens.
        kv_cache_mib: the key-value cache.
    """
    source, output = folder / "run-batch-in.jsonl", folder / "run-batch-out.jsonl"
    source.write_text("".join(json.dumps(_unnamed(line)) + "\n" for line in lines))
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "--model", str(model)),
        *("-i", str(source), "-o", str(output), "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(context), "--kv-cache-memory-bytes", str(kv_cache_mib << 20)),
        *("--max-num-seqs", "8"),
    ]
    # Threads that vLLM binds to cores wait for each other on a busy machine.
    threads = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **threads, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return bodies_by_id(output.read_text())


def bodies_by_id(text: str) -> dict[str, dict[str, Any]]:
    """Returns the responses' bodies of an output file by custom id, each of which it has once."""
    found = [json.loads(line) for line in text.splitlines()]
    counts = Counter(line["custom_id"] for line in found)
    assert set(counts.values()) <= {1}, counts.most_common(3)
    return {line["custom_id"]: line["response"]["body"] for line in found}


def said(bodies: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Returns choices (texts, reasons to end) and usage by custom id."""
    return {name: (body["choices"], body["usage"]) for name, body in bodies.items()}


def _unnamed(line: Line) -> dict[str, Any]:
    body = {name: value for name, value in line["body"].items() if name != "model"}
    return {**line, "method": "POST", "body": body}
