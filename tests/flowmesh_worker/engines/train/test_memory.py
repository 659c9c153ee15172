"""The memory of a training: the arithmetic, and the remedies of a refusal."""

from dataclasses import replace

import pytest

from flowmesh_worker.engines.train.memory import ModelSize, TrainingPlan, need, what_fits

MIB = 1024 * 1024
# SmolLM2-135M: 30 layers of width 576, 49,152 tokens, embeddings shared with the head.
SMOL = ModelSize(
    parameters=134_515_008,
    matrices=106_168_320,
    lora=921_600,
    layers=30,
    hidden=576,
    inner=1536,
    vocabulary=49_152,
    weight_bytes=4,
)
FULL = TrainingPlan(
    size=SMOL,
    use_peft=False,
    load_in_8bit=False,
    optim="adamw_torch_fused",
    batch=8,
    length=64,
    checkpointing=True,
    full_logits=False,
    references=0,
    overhead_mib=900,
)
LORA = replace(FULL, use_peft=True)


def proposals(plan: TrainingPlan, memory_mib: int, *, on_device: bool = False) -> list[str]:
    return list(what_fits(plan, memory_mib, on_device=on_device))


def test_full_training_holds_weights_gradients_and_two_moments() -> None:
    wanted = need(FULL)
    weights = -(-SMOL.parameters * 4 // MIB)
    assert (wanted.weights, wanted.gradients) == (weights, weights)
    assert wanted.moments == pytest.approx(2 * weights, abs=1)


def test_an_adapter_is_trained_in_float32_beside_frozen_weights() -> None:
    half = replace(LORA, size=replace(SMOL, weight_bytes=2))
    assert need(half).weights == -(-(SMOL.parameters * 2 + SMOL.lora * 4) // MIB)
    assert need(half).gradients == -(-SMOL.lora * 4 // MIB)


def test_eight_bits_shrink_only_the_matrices() -> None:
    eight = need(replace(LORA, load_in_8bit=True))
    rest = SMOL.parameters - SMOL.matrices
    assert eight.weights == -(-(rest * 4 + SMOL.matrices + SMOL.lora * 4) // MIB)


def test_activations_grow_with_the_batch_and_shrink_with_checkpointing() -> None:
    small, large = need(FULL).activations, need(replace(FULL, batch=16)).activations
    assert large > small
    assert need(replace(FULL, checkpointing=False)).activations > 3 * small


def test_whole_logits_count_every_token_and_chunks_a_few() -> None:
    long = replace(FULL, length=1024)
    more = need(replace(long, full_logits=True)).activations - need(long).activations
    assert more == pytest.approx(3 * (8 * 1024 - 256) * SMOL.vocabulary * 4 / MIB, rel=0.01)


def test_a_reference_model_adds_another_copy_of_the_weights() -> None:
    assert need(replace(FULL, references=1)).weights == pytest.approx(2 * need(FULL).weights, abs=1)


def test_a_refusal_proposes_only_what_fits() -> None:
    there = need(FULL).total - 1
    said = proposals(FULL, there)
    assert any(p.startswith("use_peft: true") for p in said)
    assert any(p.startswith("optim: adafactor") for p in said)
    assert said[-1] == f"resources.memory: {need(FULL).total}Mi"
    assert not any("8bit" in p for p in said), "there is no GPU"
    lean = need(LORA).total - 1
    assert not any(p.startswith("use_peft: true") for p in proposals(FULL, lean))


def test_a_refusal_on_a_device_proposes_eight_bits() -> None:
    eight = need(replace(LORA, load_in_8bit=True)).total
    assert any("load_in_8bit" in p for p in proposals(LORA, eight, on_device=True))


def test_the_proposed_batch_is_the_largest_that_fits() -> None:
    wide = replace(LORA, batch=64, length=512)
    there = need(replace(wide, batch=13)).total
    assert need(replace(wide, batch=14)).total > there
    [said] = [p for p in proposals(wide, there) if p.startswith("per_device")]
    assert said == "per_device_train_batch_size: 13 with gradient_accumulation_steps times 5"
