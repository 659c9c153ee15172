"""Our sampler on a CPU gives the tokens of vLLM's, in a fraction of the time."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = """
import json, sys
import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
from flowmesh_worker.engines.llm import sampler_cpu

WORDS, found = 500, []
kept = TopKTopPSampler.forward_cpu
sampler_cpu.use_on_cpu()
assert TopKTopPSampler.forward_cpu is sampler_cpu.sample is not kept
sampler = TopKTopPSampler()
assert sampler.forward.__func__ is sampler_cpu.sample
draw = torch.Generator().manual_seed(1)
for case in range(60):
    rows = 1 + case % 7
    logits = 4 * torch.randn(rows, WORDS, generator=draw)
    kinds = torch.randint(0, 3, (rows,), generator=draw)
    k = torch.tensor([1, 5, WORDS], dtype=torch.int32)[kinds] if case % 5 else None
    p = torch.where(kinds == 0, 1.0, 0.9) if case % 3 else None
    seeded = rows if case % 4 else max(0, rows - 1)
    pair = []
    for sample in (kept, sampler_cpu.sample):
        torch.manual_seed(case)  # of what rows without a generator draw
        generators = {row: torch.Generator().manual_seed(100 * case + row) for row in range(seeded)}
        copied = [None if x is None else x.clone() for x in (k, p)]
        steps = [sample(sampler, logits.clone(), generators, *copied)[0].tolist() for _ in range(3)]
        pair.append(steps)
    found.append(pair)
print(json.dumps(found))
"""


def test_tokens_equal_those_of_vllm() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 60
    assert all(theirs == ours for theirs, ours in found)
    assert len({str(ours) for _, ours in found}) == 60


RANKS = """
import json
import torch
from torch._dynamo.utils import counters
from vllm.v1.sample.sampler import Sampler
from flowmesh_worker.engines.llm import sampler_cpu

sampler_cpu.use_on_cpu()
logprobs = torch.randn(4, 500, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
tokens = torch.tensor([3, 77, 250, 499])
found = Sampler.gather_logprobs(logprobs, 2, tokens).selected_token_ranks.tolist()
order = logprobs.argsort(-1, descending=True)
ranks = [int((row == token).nonzero()) + 1 for row, token in zip(order, tokens)]
print(json.dumps({"found": found, "ranks": ranks, "compiled": counters["stats"]["unique_graphs"]}))
"""


def test_log_probabilities_start_no_compiler() -> None:
    """The compiler's memory would count as the engine's, whose host would be killed for it."""
    done = subprocess.run(
        [sys.executable, "-c", RANKS],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["found"], found["compiled"]) == (found["ranks"], 0)
