"""Penalties and tokens that are left out, beside vLLM's own penalties and by hand."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = """
import json, math
import torch
from vllm.model_executor.layers.utils import apply_penalties
from flowmesh_worker.engines.llm.logit_limits import limit
from flowmesh_worker.engines.llm.requests import Sampling

WORDS = 12
draw = torch.Generator().manual_seed(3)
pairs = []
for case in range(20):
    prompt, tokens = (
        torch.randint(0, WORDS, (length,), generator=draw).tolist() for length in (5, 1 + case % 4)
    )
    logits = torch.randn(WORDS, generator=draw)
    presence, frequency, repetition = 0.3 * (case % 2), 0.2 * (case % 3), 1 + 0.2 * (case % 4)
    ours = logits.clone()
    limit(ours, Sampling(presence_penalty=presence, frequency_penalty=frequency,
                         repetition_penalty=repetition), prompt, tokens, set(), [])
    one = lambda value: torch.tensor([value])
    theirs = apply_penalties(logits.clone().unsqueeze(0), torch.tensor([prompt]),
                             torch.tensor([tokens]), one(presence), one(frequency), one(repetition))
    pairs.append([ours.tolist(), theirs[0].tolist()])

def left_out(sampling, prompt, tokens, ends=(), bad_words=()):
    logits = torch.zeros(WORDS)
    limit(logits, sampling, prompt, tokens, set(ends), bad_words)
    return [word for word, value in enumerate(logits.tolist()) if value == -math.inf]

print(json.dumps({
    "pairs": pairs,
    "too short": left_out(Sampling(min_tokens=2), [1], [5], ends=[0, 9]),
    "long enough": left_out(Sampling(min_tokens=2), [1], [5, 6], ends=[0, 9]),
    "bad words": left_out(Sampling(), [1], [4, 5], bad_words=[[7], [5, 8], [4, 9]]),
    "three in a row": left_out(Sampling(no_repeat_ngram=3), [1, 2, 3, 4], [1, 2]),
    "none yet": left_out(Sampling(no_repeat_ngram=3), [1], [2]),
}))
"""


def test_logits_are_limited_as_vllm_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for ours, theirs in found.pop("pairs"):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert found == {
        "too short": [0, 9],
        "long enough": [],
        "bad words": [7, 8],
        "three in a row": [3],
        "none yet": [],
    }
