"""spec.llm of a pool: what becomes of it in the arguments of vLLM."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.flowmesh_worker.engines.llm.jobs import action, job

from flowmesh_core.spec.pool_llm import PoolLlm
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.vllm_sizes import sizes_for
from flowmesh_worker.engines.llm.vllm_start import engine_arguments
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.host.libraries import loaded_libraries
from flowmesh_worker.llm_settings import EAGER, VARIABLE, PoolLlmSettings, pool_llm_settings
from flowmesh_worker.settings import parse_settings

FACTS = ModelFacts(Path("model"), "float32", 4096, 1000, 64)
ALL = (
    '{"maxNumSeqs":32,"maxNumBatchedTokens":512,"gpuMemoryUtilization":0.5,'
    '"enforceEager":true,"enableChunkedPrefill":false}'
)
WORKER = ["--gateway", "ws://127.0.0.1:1", "--store", "/tmp/s"]


def arguments(given: str = "", *, on_gpu: bool = True) -> dict[str, Any]:
    pool = pool_llm_settings({VARIABLE: given})
    host = HostSettings((0,) if on_gpu else (), 4000, 1, {}, Path("unused"))
    sizes = sizes_for(FACTS, "float32", host, pool=pool)
    fields = {"devices": len(host.devices), "tensor_parallel": 1, "engine": {}, "pool": pool}
    return engine_arguments(FACTS, "float32", sizes, fields)


def named(made: dict[str, Any]) -> tuple[Any, ...]:
    names = ("max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_chunked_prefill")
    return tuple(made[name] for name in names)


def test_without_settings_the_worker_chooses() -> None:
    assert named(arguments()) == (256, 8192, False, True)
    assert named(arguments(on_gpu=False)) == (64, 4096, True, False)
    assert "gpu_memory_utilization" not in arguments()


def test_a_step_of_the_longest_prompt_fits_beside_the_cache_on_a_cpu() -> None:
    """SmolLM2-135M: a step of 8,192 tokens takes 360 MiB more."""
    facts = ModelFacts(Path("model"), "float32", 8192, 538_000_000, 11_520, False, 11_328)
    host = HostSettings((), 2668, 1, {}, Path("unused"))
    sizes = sizes_for(facts, "float32", host)
    assert sizes.batched_tokens == 8192
    others_mib = 1100 + 538_000_000 / 1024**2 + 8192 * 45 / 1024
    assert sizes.kv_cache_bytes / 1024**2 + others_mib <= 2668 + 10
    assert sizes.kv_cache_bytes >= 8192 * 11_520 * 4, "the longest sequence fits"


def test_each_setting_of_the_pool_is_an_argument_of_vllm() -> None:
    assert named(arguments('{"maxNumSeqs":32}')) == (32, 8192, False, True)
    assert named(arguments('{"maxNumBatchedTokens":512}')) == (256, 512, False, True)
    assert named(arguments('{"enforceEager":true}')) == (256, 8192, True, True)
    # A prompt that is not cut has to fit into one step.
    assert named(arguments(ALL)) == (32, 4096, True, False)
    half, usual = arguments('{"gpuMemoryUtilization":0.45}'), arguments()
    assert half["gpu_memory_utilization"] == 0.45
    assert usual["kv_cache_memory_bytes"] - half["kv_cache_memory_bytes"] == 0.45 * 4000 * 1024**2


def test_graphs_are_captured_for_few_sizes_up_to_the_largest_batch() -> None:
    sizes = arguments()["cudagraph_capture_sizes"]
    assert (sizes[0], sizes[-1], len(sizes)) == (1, 512, 15)
    assert all(small < large <= 2 * small for small, large in pairwise(sizes))
    assert arguments('{"maxNumSeqs":20}')["cudagraph_capture_sizes"][-3:] == [24, 32, 40]
    assert arguments('{"maxNumSeqs":1}')["cudagraph_capture_sizes"] == [1, 2]
    few_tokens = arguments('{"maxNumSeqs":100,"maxNumBatchedTokens":120}')
    assert few_tokens["cudagraph_capture_sizes"][-2:] == [96, 120]
    assert arguments('{"enforceEager":true}')["cudagraph_capture_sizes"] is None
    assert arguments(on_gpu=False)["cudagraph_capture_sizes"] is None


def test_a_step_has_a_token_for_each_sequence() -> None:
    assert named(arguments('{"maxNumBatchedTokens":100}'))[:2] == (256, 256)


def test_on_a_cpu_prompts_are_never_cut_and_there_are_no_graphs() -> None:
    given = '{"maxNumSeqs":2,"maxNumBatchedTokens":64,"enableChunkedPrefill":true}'
    assert named(arguments(given, on_gpu=False)) == (2, 4096, True, False)


WRONG = [
    ("{", "truncated"),
    ("[1]", "Expected `object`, got `array`"),
    ('{"maxSeqs":1}', "maxSeqs"),
    ('{"maxNumSeqs":0}', "`int` >= 1 - at `$.maxNumSeqs`"),
    ('{"maxNumSeqs":8193}', "`int` <= 8192 - at `$.maxNumSeqs`"),
    ('{"maxNumSeqs":"32"}', "$.maxNumSeqs"),
    ('{"maxNumBatchedTokens":0}', "$.maxNumBatchedTokens"),
    ('{"maxNumBatchedTokens":1048577}', "`int` <= 1048576 - at `$.maxNumBatchedTokens`"),
    ('{"maxNumSeqs":64,"maxNumBatchedTokens":32}', "must not be less than maxNumSeqs"),
    ('{"gpuMemoryUtilization":1.5}', "`float` <= 0.99 - at `$.gpuMemoryUtilization`"),
    ('{"gpuMemoryUtilization":90}', "<= 0.99"),
    ('{"gpuMemoryUtilization":0.01}', "`float` >= 0.1 - at `$.gpuMemoryUtilization`"),
    ('{"enforceEager":"yes"}', "bool"),
]
RIGHT = [
    "{}",
    '{"maxNumSeqs":8192}',
    '{"maxNumSeqs":1,"maxNumBatchedTokens":1}',
    '{"maxNumBatchedTokens":1048576,"gpuMemoryUtilization":0.99}',
    '{"gpuMemoryUtilization":0.1}',
    ALL,
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[given for given, _ in WRONG])
def test_a_worker_refuses_wrong_settings_at_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(SystemExit):
        parse_settings(WORKER)
    printed = " ".join(capsys.readouterr().err.split())
    assert f"{VARIABLE}: " in printed
    assert said in printed
    assert "correct it or remove it" in printed
    monkeypatch.setenv(VARIABLE, ALL)
    parse_settings(WORKER)


@pytest.mark.parametrize("given", [*(given for given, _ in WRONG if given != "{"), *RIGHT])
def test_a_worker_and_the_pools_object_refuse_the_same_settings(given: str) -> None:
    def refuses(read: Callable[[], object]) -> bool:
        try:
            read()
        except ValueError:
            return True
        return False

    by_worker = refuses(lambda: pool_llm_settings({VARIABLE: given}))
    assert by_worker == refuses(lambda: PoolLlm.model_validate_json(given)) == (given not in RIGHT)


def test_results_without_cuda_graphs_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0"))
    assert EAGER not in loaded_libraries()
    monkeypatch.setenv(VARIABLE, '{"maxNumSeqs":2}')
    assert EAGER not in loaded_libraries()
    monkeypatch.setenv(VARIABLE, '{"enforceEager":true}')
    assert loaded_libraries()[EAGER] == "true"


def test_without_the_variable_nothing_is_set() -> None:
    assert pool_llm_settings({}) == PoolLlmSettings()


@pytest.mark.slow
@pytest.mark.model
def test_an_engine_decodes_as_many_sequences_at_once_as_the_pool_allows(
    tiny_model: Path, drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = job(tiny_model, [action("fox", "dog", "cat", "bird", temperature=0)])
    usual = drive(wanted)
    monkeypatch.setenv(VARIABLE, '{"maxNumSeqs":2}')
    bounded = drive(wanted)
    assert bounded["max_num_seqs"] == 2 < usual["max_num_seqs"]
    rows = [answer["batches"][0][0]["rows"] for answer in (usual, bounded)]
    assert rows[0] == rows[1]  # the settings are no part of a result


@pytest.mark.slow
def test_vllm_knows_every_argument_of_an_engine_on_devices() -> None:
    fields = (
        "from vllm.engine.arg_utils import AsyncEngineArgs as a; print(*a.__dataclass_fields__)"
    )
    known = subprocess.run([sys.executable, "-c", fields], capture_output=True, check=True).stdout
    assert arguments(ALL).keys() <= set(known.decode().split())
