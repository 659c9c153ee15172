import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from flowmesh_core.costmodel import CostKey, CostModel, decode_model, encode_model
from flowmesh_core.costmodel.devices import (
    DEVICES,
    FETCH_CONNECTIONS,
    FETCH_PIECE_BYTES,
    UNKNOWN_GPU,
    rates_of,
)
from flowmesh_core.costmodel.model import SAMPLED_EVERY, SAMPLED_FROM
from flowmesh_core.costmodel.regression import PriorFit
from flowmesh_core.costmodel.residuals import WINDOW, Residuals
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.units import Digest
from flowmesh_store.ordered_pieces import PIECE_BYTES, PIECES_AT_ONCE

LLAMA_8B = 16_060_000_000
SMOLLM = 538_000_000
LLM = CostKey("llm.generate", Digest("a" * 64), "tokens")
SQL = CostKey("data.sql", Digest("b" * 64), "rows")


def tokens(n_in, n_out, size=SMOLLM):
    return WorkSize(
        units=float(n_in + n_out),
        tokens_in=float(n_in),
        tokens_out=float(n_out),
        component_bytes=size,
    )


def taught(model, key, seconds, *, times=20, work=None, device="cpu", **kwargs):
    for _ in range(times):
        model.observe(key, work or WorkSize(units=100.0), seconds, 0.0, device, **kwargs)


@pytest.mark.parametrize(
    ("batch", "published_ms"), [(8, 7.32), (16, 7.91), (32, 8.91), (64, 11.50), (128, 16.48)]
)
def test_the_prior_is_within_a_tenth_of_published_decoding_on_an_h100(batch, published_ms):
    work = tokens(0, 1000, LLAMA_8B)
    seconds = CostModel().predict(LLM, "nvidia-h100", work, batch=batch).seconds
    assert seconds == pytest.approx(published_ms, rel=0.10)


def test_sequences_of_one_action_decode_side_by_side():
    model = CostModel()
    one = replace(tokens(0, 100, LLAMA_8B), decode_steps=100.0)
    rows = replace(tokens(0, 2400, LLAMA_8B), decode_steps=100.0)
    after_another = tokens(0, 2400, LLAMA_8B)
    alone_s, rows_s, serial_s = (
        model.predict(LLM, "nvidia-h100", work).seconds for work in (one, rows, after_another)
    )
    assert alone_s < rows_s < 3 * alone_s
    assert serial_s > 20 * alone_s
    rate = model.rate(LLM, "nvidia-h100", LLAMA_8B)
    assert rate.seconds(rows) == pytest.approx(rows_s)
    assert rows.sequences == 24.0


@pytest.mark.parametrize(("batch", "measured"), [(1, 19.0), (64, 141.0)])
def test_the_prior_is_near_what_was_measured_on_two_cores(batch, measured):
    seconds = CostModel().predict(LLM, "cpu", tokens(60, 48), batch=batch).seconds
    assert 48 * batch / seconds == pytest.approx(measured, rel=0.25)


def test_the_prior_of_long_prompts_is_near_what_was_measured_on_two_cores():
    """SmolLM2-135M under vLLM: 16 prompts of 256 tokens, one token each, took 4.3 to 4.8 s."""
    seconds = CostModel().predict(LLM, "cpu", tokens(16 * 256, 16)).seconds
    assert 4.3 / 1.3 < seconds < 4.8 * 1.3


def test_a_short_training_step_is_mostly_its_trainer():
    """80 samples of SmolLM2-135M with LoRA took 11.5 s on two cores."""
    sft = CostKey("train.sft", Digest("c" * 64), "samples")
    seconds = CostModel().predict(sft, "cpu", WorkSize(80.0)).seconds
    assert 11.5 / 1.3 < seconds < 11.5 * 1.3


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("cpu", "cpu"),
        ("nvidia-h100", "h100"),
        ("NVIDIA-H100-NVL", "h100-nvl"),
        ("nvidia-l40s", "l40s"),
        ("nvidia-l4", "l4"),
        ("nvidia-a10g", "a10g"),
        ("nvidia-a100-80gb", "a100"),
        ("nvidia-rtx-4090", "4090"),
        ("nvidia-h200", "h200"),
    ],
)
def test_a_device_class_finds_its_row_of_the_table(name, row):
    assert rates_of(name) is DEVICES[row]


def test_an_unknown_device_class_is_a_middling_gpu():
    assert rates_of("tpu-v9") is UNKNOWN_GPU


def test_a_batch_makes_an_action_slower_and_cheaper():
    alone = CostModel().predict(LLM, "nvidia-h100", tokens(100, 100, LLAMA_8B), batch=1)
    beside = CostModel().predict(LLM, "nvidia-h100", tokens(100, 100, LLAMA_8B), batch=32)
    assert beside.seconds > alone.seconds
    assert beside.nanousd(10**9) < alone.nanousd(10**9) / 5
    assert beside.joules(700.0) < alone.joules(700.0) / 5


def test_dollars_are_the_share_of_the_price_while_it_runs():
    model = CostModel()
    taught(model, SQL, 36.0, times=60)
    found = model.predict(SQL, "cpu", WorkSize(units=100.0))
    assert found.nanousd(1_000_000_000) == pytest.approx(10_000_000, rel=0.02)
    assert found.p95_nanousd(1_000_000_000) >= found.nanousd(1_000_000_000)


@pytest.mark.parametrize("factor", [0.02, 0.3, 1.0, 8.0, 200.0])
def test_ten_observations_correct_a_prior_that_is_wrong_by_any_factor(factor):
    model = CostModel()
    truth = factor * model.predict(SQL, "cpu", WorkSize(units=100_000.0)).seconds
    taught(model, SQL, truth, times=10, work=WorkSize(units=100_000.0))
    found = model.predict(SQL, "cpu", WorkSize(units=100_000.0))
    assert found.seconds == pytest.approx(truth, rel=0.15)
    assert found.samples == 10


def test_the_parts_of_generation_are_learned_separately():
    rng = random.Random(1)
    model = CostModel()
    for _ in range(300):
        batch = rng.choice((1, 4, 16, 64))
        work = tokens(rng.randint(10, 200), rng.randint(1, 100))
        truth = 0.2 + 0.02 * work.tokens_in + work.tokens_out * (0.1 + 0.02 * batch)
        model.observe(LLM, work, truth * rng.lognormvariate(0, 0.1), 0.0, "cpu", batch=batch)
    for batch, work in [(1, tokens(150, 20)), (64, tokens(20, 90)), (30, tokens(60, 60))]:
        truth = 0.2 + 0.02 * work.tokens_in + work.tokens_out * (0.1 + 0.02 * batch)
        assert model.predict(LLM, "cpu", work, batch=batch).seconds == pytest.approx(truth, rel=0.1)
    assert model.error(LLM, "cpu", SMOLLM) < 0.15


def test_the_model_stays_accurate_over_ten_thousand_observations():
    rng = random.Random(2)
    model = CostModel()
    work = WorkSize(units=1000.0)
    for _ in range(10_000):
        model.observe(SQL, work, 3.0 * rng.lognormvariate(0, 0.2), 0.0, "cpu")
    assert model.predict(SQL, "cpu", work).seconds == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("outlier", [0.0, 300.0, 1e9])
def test_one_outlier_moves_a_prediction_by_a_fifth_at_most(outlier):
    model = CostModel()
    taught(model, SQL, 3.0, times=40)
    model.observe(SQL, WorkSize(units=100.0), outlier, 0.0, "cpu")
    assert model.predict(SQL, "cpu", WorkSize(units=100.0)).seconds == pytest.approx(3.0, rel=0.2)


def test_a_lasting_change_is_followed_within_twenty_observations():
    model = CostModel()
    taught(model, SQL, 3.0, times=60)
    taught(model, SQL, 9.0, times=20)
    assert model.predict(SQL, "cpu", WorkSize(units=100.0)).seconds == pytest.approx(9.0, rel=0.2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_an_invalid_duration_is_not_learned(bad):
    model = CostModel()
    model.observe(SQL, WorkSize(units=1.0), bad, bad, "cpu")
    model.observe(SQL, WorkSize(units=1.0), 1.0, 0.0, "cpu", batch=math.nan)
    assert model.predict(SQL, "cpu", WorkSize(units=1.0)).samples == 0


AMOUNTS = st.floats(0, 1e7)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS, st.floats(0, 1e6), st.floats(1, 300)), max_size=40),
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    st.sampled_from(["cpu", "nvidia-h100"]),
)
def test_more_work_never_takes_less_time_after_any_observations(seen, n_in, n_out, more, device):
    model = CostModel()
    for t_in, t_out, seconds, batch in seen:
        model.observe(LLM, tokens(t_in, t_out), seconds, 0.0, device, batch=batch)
    less = model.predict(LLM, device, tokens(n_in, n_out), batch=4)
    for work in (tokens(n_in + more, n_out), tokens(n_in, n_out + more)):
        assert model.predict(LLM, device, work, batch=4).seconds >= less.seconds
    wide = model.predict(LLM, device, tokens(n_in, n_out), batch=8)
    assert wide.seconds >= less.seconds
    for one in (less, wide):
        assert 0.0 < one.seconds < math.inf
        assert one.seconds <= one.p95_s < math.inf
        assert 0.0 <= one.error <= 1.0
        assert 0.0 < one.load_s < math.inf


@settings(max_examples=60, deadline=None)
@given(AMOUNTS, AMOUNTS, st.integers(0, 10**11), st.floats(1, 300), st.floats(0.1, 100))
def test_a_rate_agrees_with_the_prediction(n_in, n_out, size, batch, seconds):
    model = CostModel()
    model.observe(LLM, tokens(5, 5, size), seconds, 0.0, "cpu", batch=3)
    model.observe(SQL, WorkSize(units=50.0, input_bytes=10**6), seconds, 0.0, "cpu")
    for key, work in [
        (LLM, tokens(n_in, n_out, size)),
        (LLM, WorkSize(units=n_in, component_bytes=size)),
        (SQL, WorkSize(units=n_in, input_bytes=int(n_out), component_bytes=size)),
    ]:
        found = model.predict(key, "cpu", work, batch=batch)
        rate = model.rate(key, "cpu", size, batch)
        assert rate.seconds(work) == pytest.approx(found.seconds)
        assert rate.seconds(work) * rate.p95_ratio == pytest.approx(found.p95_s)
        assert rate.share == found.share


def test_tokens_without_a_distinction_count_as_generated():
    told = CostModel().predict(LLM, "cpu", tokens(0, 50))
    assert CostModel().predict(LLM, "cpu", WorkSize(units=50.0, component_bytes=SMOLLM)) == told


def test_a_signature_that_was_never_seen_uses_what_was_learned_for_its_engine():
    model = CostModel()
    prior = model.predict(SQL, "cpu", WorkSize(units=100_000.0)).seconds
    taught(model, SQL, 5 * prior, work=WorkSize(units=100_000.0))
    other = CostKey("data.sql", Digest("c" * 64), "rows")
    assert model.predict(other, "cpu", WorkSize(units=100_000.0)).seconds == pytest.approx(
        5 * prior, rel=0.1
    )
    stranger = CostKey("eval.exact-match", Digest("c" * 64), "rows")
    assert model.predict(stranger, "cpu", WorkSize(units=100_000.0)).seconds == prior
    assert model.predict(SQL, "nvidia-h100", WorkSize(units=100_000.0)).samples == 0


def test_knowledge_of_one_model_size_carries_over_to_another():
    model = CostModel()
    small, large = tokens(100, 100, SMOLLM), tokens(100, 100, 8 * SMOLLM)
    prior = model.predict(LLM, "cpu", large).seconds
    slow = 3 * model.predict(LLM, "cpu", small).seconds
    taught(model, LLM, slow, work=small)
    other = CostKey("llm.generate", Digest("c" * 64), "tokens")
    assert model.predict(other, "cpu", large).seconds == pytest.approx(3 * prior, rel=0.25)


def test_the_p95_covers_95_of_a_hundred_of_a_skewed_distribution():
    rng = random.Random(3)
    model = CostModel()
    work = WorkSize(units=100.0)
    draws = [2.0 * rng.lognormvariate(0, 0.5) for _ in range(2000)]
    for seconds in draws[:1000]:
        model.observe(SQL, work, seconds, 0.0, "cpu")
    bound = model.predict(SQL, "cpu", work).p95_s
    covered = sum(seconds <= bound for seconds in draws[1000:]) / 1000
    assert 0.88 <= covered <= 0.995


def test_loading_is_learned_per_model_and_device():
    model = CostModel()
    prior = model.load_s(LLM, "cpu", SMOLLM)
    for _ in range(5):
        model.observe_load(LLM, "cpu", SMOLLM, 12.0)
    assert model.load_s(LLM, "cpu", SMOLLM) == pytest.approx(12.0, rel=0.01)
    assert model.predict(LLM, "cpu", tokens(1, 1)).load_s == pytest.approx(12.0, rel=0.01)
    assert model.load_s(LLM, "nvidia-h100", SMOLLM) != pytest.approx(12.0, rel=0.1)
    assert prior > 20.0


def test_an_attempt_that_waited_for_part_of_a_load_lowers_the_load_estimate_little():
    model = CostModel()
    model.observe_load(LLM, "cpu", SMOLLM, 50.0)
    model.observe(LLM, tokens(1, 1), 1.0, 2.0, "cpu")
    assert model.load_s(LLM, "cpu", SMOLLM) > 30.0
    model.observe(LLM, tokens(1, 1), 1.0, 120.0, "cpu")
    assert model.load_s(LLM, "cpu", SMOLLM) > 60.0


def test_engines_without_components_start_at_once():
    assert CostModel().load_s(SQL, "cpu", 0) < 2.0
    assert CostModel().load_s(LLM, "nvidia-h100", LLAMA_8B) > 30.0


def test_the_peak_of_memory_is_remembered_and_fades():
    model = CostModel()
    model.observe_memory(LLM, "cpu", 1000)
    model.observe_memory(LLM, "cpu", 600)
    assert 950 <= model.memory_mib(LLM, "cpu") < 1000
    for _ in range(60):
        model.observe_memory(LLM, "cpu", 600)
    assert model.memory_mib(LLM, "cpu") == 600
    model.observe_memory(LLM, "cpu", 0)
    assert model.memory_mib(SQL, "cpu") == 0


def test_the_error_falls_from_one_with_observations():
    model = CostModel()
    assert model.error(SQL, "cpu") == 1.0
    taught(model, SQL, 2.0, times=200)
    assert model.error(SQL, "cpu") < 0.01


def test_a_model_comes_back_from_its_stored_form():
    model = CostModel()
    rng = random.Random(4)
    for _ in range(80):
        model.observe(LLM, tokens(9, 9), rng.uniform(1, 2), rng.uniform(0, 9), "cpu", batch=2)
        model.observe_memory(LLM, "cpu", 77)
    back = decode_model(encode_model(model))
    assert encode_model(back) == encode_model(model)
    assert back.predict(LLM, "cpu", tokens(7, 7)) == model.predict(LLM, "cpu", tokens(7, 7))
    back.observe(LLM, tokens(9, 9), 1.0, 0.0, "cpu")
    model.observe(LLM, tokens(9, 9), 1.0, 0.0, "cpu")
    assert encode_model(back) == encode_model(model)


def test_a_stored_form_of_another_version_gives_the_prior():
    data = msgspec.json.encode({"version": 99, "whatever": []})
    assert decode_model(data).error(SQL, "cpu") == 1.0


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 1, "learned": 3}'])
def test_bytes_that_are_not_a_model_are_refused(data):
    with pytest.raises(msgspec.DecodeError):
        decode_model(data)


def test_signatures_seen_long_ago_are_forgotten_first(monkeypatch):
    monkeypatch.setattr("flowmesh_core.costmodel.model.SIGNATURES_MAX", 8)
    model = CostModel()
    for n in range(40):
        model.observe(CostKey("e", Digest(f"{n:064d}"), "rows"), WorkSize(), 1.0, 0.0, "cpu")
    assert len(model.learned) <= 8
    assert model.error(CostKey("e", Digest(f"{39:064d}"), "rows"), "cpu") < 1.0
    assert ("cpu", "e") in model.learned


def test_residuals_forget_what_is_older_than_their_window():
    found = Residuals([9.0] * WINDOW)
    for _ in range(WINDOW):
        found.add(1.0)
    assert found.p95_ratio() == 1.0
    assert found.ordered == sorted(found.recent)


def test_a_fit_without_observations_of_a_term_does_not_wind_up():
    fit = PriorFit()
    for _ in range(3000):
        fit.update((1.0, 0.0, 0.0, 0.0), 2.0)
    assert fit.theta[0] == pytest.approx(2.0, rel=0.01)
    assert all(fit.spread[i][i] <= 4.0 + 1e-9 for i in range(4))
    fit.update((1.0, 1.0, 1.0, 1.0), 10.0)
    assert all(0.0 <= t < 50.0 for t in fit.theta)


def test_very_frequent_observations_are_sampled_and_a_change_is_still_noticed():
    model, work = CostModel(), WorkSize(units=1.0)
    for _ in range(4 * SAMPLED_FROM):
        model.observe(SQL, work, 0.01, 0.0, "cpu")
    settled = model.predict(SQL, "cpu", work)
    assert settled.seconds == pytest.approx(0.01, rel=0.05)
    seen = 4 * SAMPLED_FROM - SAMPLED_FROM
    assert settled.samples == SAMPLED_FROM + seen // SAMPLED_EVERY
    for _ in range(20 * SAMPLED_EVERY):
        model.observe(SQL, work, 1.0, 0.0, "cpu")
    assert model.predict(SQL, "cpu", work).seconds == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("load_s", [5e-324, 1e-300, 1e9])
def test_a_learned_load_time_is_bounded(load_s):
    model = CostModel()
    model.observe_load(SQL, "cpu", 10**12, load_s)
    prior_s = CostModel().load_s(SQL, "cpu", 10**12)
    ratio = model.load_s(SQL, "cpu", 10**12) / prior_s
    assert math.exp(-6.01) <= ratio <= math.exp(6.01)


def test_a_small_blob_is_expected_to_come_by_one_connection_and_a_large_one_by_eight():
    assert (FETCH_CONNECTIONS, FETCH_PIECE_BYTES) == (PIECES_AT_ONCE, PIECE_BYTES)
    fetch_s = CostModel().fetch_s
    assert fetch_s(0) == 0.0
    assert fetch_s(PIECE_BYTES) == pytest.approx(PIECE_BYTES / 87.5e6)
    assert fetch_s(9 * PIECE_BYTES) == pytest.approx(2 * fetch_s(PIECE_BYTES))
    assert fetch_s(LLAMA_8B) == pytest.approx(23.0, rel=0.01)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_more_bytes_are_never_expected_to_come_sooner(one, more):
    fetch_s = CostModel().fetch_s
    assert fetch_s(one) <= fetch_s(one + more) <= fetch_s(one) + fetch_s(more) + 1e-9
