"""The models of devices, compared with the published measurements they are based on."""

import pytest

from flowmesh_core.fleet.ready import SEQUENCES_AT_ONCE
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.models.devices import HardwareCatalog
from flowmesh_worker.engines.llm.cuda_graphs import graph_sizes
from flowmesh_worker.engines.llm.vllm_sizes import (
    BATCHED_TOKENS_GPU,
    SEQUENCES_CPU,
    SEQUENCES_GPU,
)

HARDWARE = HardwareCatalog(read_constants())
LARGE = HARDWARE.models["llama-3.1-8b"]
ML_ENERGY = [(8, 7.32), (16, 7.91), (32, 8.91), (64, 11.50), (96, 14.08), (128, 16.48)]


@pytest.mark.parametrize(("batch", "milliseconds"), ML_ENERGY)
def test_decoding_on_an_h100_agrees_with_the_published_points(
    batch: int, milliseconds: float
) -> None:
    step_s = HARDWARE.devices["h100"].decode_step_s(LARGE, batch, 450)
    assert step_s * 1e3 == pytest.approx(milliseconds, rel=0.05)


@pytest.mark.parametrize(
    ("device", "model", "batch", "milliseconds"),
    [
        ("h100-nvl", "llama-3.1-8b", 12, 6.6),
        ("h100-nvl", "llama-3.2-3b", 24, 4.7),
        ("4090", "llama-3.1-8b", 24, 21.4),
        ("4090-48", "llama-3.2-3b", 12, 9.8),
        ("a100", "llama-3.1-8b", 1, 10.7),
    ],
)
def test_decoding_gives_the_derived_table_of_the_inputs(
    device: str, model: str, batch: int, milliseconds: float
) -> None:
    step_s = HARDWARE.devices[device].decode_step_s(HARDWARE.models[model], batch, 400)
    assert step_s * 1e3 == pytest.approx(milliseconds, rel=0.03)


def test_prefill_of_long_prompts_gives_the_derived_table() -> None:
    for device, rate in (("h100-nvl", 31e3), ("4090", 6.6e3)):
        seconds = HARDWARE.devices[device].prefill_s(LARGE, 100_000, 0.0)
        assert 100_000 / seconds == pytest.approx(rate, rel=0.05)


def test_the_cache_of_a_whole_24_gib_card_has_the_size_that_engines_log() -> None:
    device = HARDWARE.devices["4090"]
    reserved = int(device.memory_mib * 0.9)
    assert 31_000 < device.kv_tokens(LARGE, reserved) < 45_000


def test_serving_draws_more_with_the_batch_and_never_more_than_the_card() -> None:
    device = HARDWARE.devices["h100"]
    draws = [device.serving_w(b) for b in (1, 8, 64, 512)]
    assert draws == sorted(draws)
    assert draws[1] == pytest.approx(0.69 * 700, rel=0.03)
    assert draws[-1] <= 700


def test_engines_decode_as_many_sequences_at_once_as_workers_and_the_scheduler_say() -> None:
    for name, most in (("h100", SEQUENCES_GPU), ("4090", SEQUENCES_GPU), ("cpu", SEQUENCES_CPU)):
        assert HARDWARE.devices[name].sequences_max == most
    assert SEQUENCES_GPU == SEQUENCES_AT_ONCE


def test_a_batch_is_computed_at_the_next_size_for_which_workers_capture_graphs() -> None:
    device = HARDWARE.devices["4090"]
    own_s = device.serving.step_s_per_sequence
    for batch in (97, 129, 200, 256):
        sizes = graph_sizes(SEQUENCES_GPU, BATCHED_TOKENS_GPU)
        captured = next(size for size in sizes if size >= batch)
        more_s = (captured - batch) * own_s
        assert device.decode_step_s(LARGE, captured, 1) == pytest.approx(
            device.decode_step_s(LARGE, batch, 1) + more_s
        ), batch
    two, three = (device.decode_step_s(LARGE, batch, 1) for batch in (192, 256))
    assert three - two > 64 * 2 * own_s, "a size that is captured is not padded"
