"""The profile of an engine's steps: the fit, and the sequences within a time."""

import os
import random

import pytest

from flowmesh_core.serving.queue.step_profile import ENOUGH_STEPS, StepFit, StepProfile

TRUTH = StepFit(0.012, 0.0015, 0.0004)


def rng() -> random.Random:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    return random.Random(seed)


def profiled(
    truth: StepFit,
    sizes: list[tuple[int, int]],
    noise: random.Random | None = None,
    steps: int = 4 * ENOUGH_STEPS,
) -> StepProfile:
    """Returns a profile of steps of these sizes, in turn, each with up to 10 % more or less."""
    profile = StepProfile()
    for _ in range(steps):
        for sequences, prompts in sizes:
            error = 1 + (noise.uniform(-0.1, 0.1) if noise else 0)
            profile.observe(sequences, prompts, error * truth.seconds(sequences, prompts))
    return profile


def test_a_line_is_found_and_predicts_a_size_that_was_not_measured() -> None:
    fit = profiled(TRUTH, [(1, 0), (4, 0), (8, 0), (3, 200), (0, 90)]).fit()
    assert fit is not None
    assert fit.seconds(24) == pytest.approx(TRUTH.seconds(24), rel=1e-6)
    assert fit.seconds(6, 500) == pytest.approx(TRUTH.seconds(6, 500), rel=1e-6)


def test_noisy_steps_of_any_line_are_predicted_to_an_eighth() -> None:
    dice = rng()
    for _ in range(30):
        truth = StepFit(
            dice.uniform(0.001, 0.05), dice.uniform(0, 0.005), dice.uniform(0.00001, 0.001)
        )
        fit = profiled(truth, [(1, 0), (4, 0), (16, 0), (3, 200), (0, 900)], dice).fit()
        assert fit is not None
        assert fit.seconds(8) == pytest.approx(truth.seconds(8), rel=0.125)
        assert fit.seconds(0, 400) == pytest.approx(truth.seconds(0, 400), rel=0.125)


@pytest.mark.parametrize("sizes", [[], [(1, 0)], [(1, 0), (1, 300), (0, 200)], [(8, 100)]])
def test_there_is_no_line_before_two_numbers_of_sequences(sizes: list[tuple[int, int]]) -> None:
    assert profiled(TRUTH, sizes).fit() is None


def test_few_steps_of_a_size_do_not_count() -> None:
    profile = profiled(TRUTH, [(1, 0)])
    for _ in range(ENOUGH_STEPS - 1):
        profile.observe(9, 0, TRUTH.seconds(9))
    assert profile.fit() is None


def test_no_part_of_a_line_is_below_zero() -> None:
    dice = rng()
    for _ in range(50):
        profile = StepProfile()
        for _ in range(4 * ENOUGH_STEPS):
            for sequences, prompts in ((1, 0), (4, 0), (9, 0), (2, 100)):
                profile.observe(sequences, prompts, dice.uniform(0.001, 0.1))
        fit = profile.fit()
        assert fit is not None
        assert min(fit.base_s, fit.sequence_s, fit.prompt_token_s) >= 0


def test_a_step_that_was_stopped_for_a_second_counts_little() -> None:
    profile = profiled(TRUTH, [(1, 0), (8, 0)])
    profile.observe(8, 0, 1.0)
    fit = profile.fit()
    assert fit is not None
    assert fit.seconds(8) < 1.1 * TRUTH.seconds(8)


def test_an_engine_that_became_slower_is_learned_anew() -> None:
    slow = StepFit(*(3 * part for part in (TRUTH.base_s, TRUTH.sequence_s, 0.0)))
    profile = profiled(TRUTH, [(1, 0), (8, 0)])
    for _ in range(200):
        for sequences in (1, 8):
            profile.observe(sequences, 0, slow.seconds(sequences))
    fit = profile.fit()
    assert fit is not None
    assert fit.seconds(4) == pytest.approx(slow.seconds(4), rel=0.02)


def test_a_steady_load_does_not_make_other_loads_forgotten() -> None:
    profile = profiled(TRUTH, [(1, 0), (8, 0)])
    for _ in range(20_000):
        profile.observe(8, 0, TRUTH.seconds(8))
    fit = profile.fit()
    assert fit is not None
    assert fit.seconds(1) == pytest.approx(TRUTH.seconds(1))


def test_memory_is_bounded() -> None:
    dice, profile = rng(), StepProfile()
    for _ in range(20_000):
        profile.observe(dice.randrange(4097), dice.choice((0, dice.randrange(1 << 17))), 0.01)
    assert len(profile._cells) <= 26 * 36


def brute_force(profile: StepProfile, fit: StepFit, limit_s: float, bound: int) -> int:
    """The oracle: tries every number."""
    prompts = profile.prompt_tokens_per_token
    found = [n for n in range(1, bound + 1) if fit.seconds(n, n * prompts) <= limit_s]
    return max(found, default=1)


def test_the_sequences_within_a_time_are_those_of_trying_every_number() -> None:
    dice = rng()
    for _ in range(200):
        truth = StepFit(dice.uniform(0.001, 0.05), dice.uniform(0, 0.005), dice.uniform(0, 0.001))
        seen = dice.choice((4, 9, 16, 64))
        sizes = [(1, 0), (3, 0), (seen, 0), (dice.randrange(1, 9), dice.randrange(1, 2000))]
        profile = profiled(truth, sizes, dice)
        fit = profile.fit()
        assert fit is not None
        limit_s, most = dice.uniform(0.001, 0.2), dice.choice((1, 8, 64, 256))
        expected = brute_force(profile, fit, limit_s, min(most, 2 * seen))
        assert profile.sequences_within(limit_s, most) == expected


def test_prompts_beside_the_sequences_take_a_part_of_the_time() -> None:
    without = profiled(TRUTH, [(1, 0), (16, 0)])
    beside = profiled(TRUTH, [(1, 0), (16, 0), (16, 400)])
    assert beside.prompt_tokens_per_token == pytest.approx(400 / 33, rel=0.1)
    assert beside.sequences_within(0.06, 64) < without.sequences_within(0.06, 64)


def test_the_number_of_sequences_doubles_from_one_that_was_measured() -> None:
    profile = StepProfile()
    allowed = [profile.sequences_within(0.05, 64)]
    while allowed[-1] not in allowed[:-1]:
        for _ in range(ENOUGH_STEPS):
            profile.observe(allowed[-1], 0, TRUTH.seconds(allowed[-1]))
        allowed.append(profile.sequences_within(0.05, 64))
    assert allowed == [2, 4, 8, 16, 25, 25]
    assert TRUTH.seconds(25) <= 0.05 < TRUTH.seconds(26)


def test_one_sequence_may_run_where_even_one_takes_too_long() -> None:
    assert profiled(TRUTH, [(1, 0)]).sequences_within(0.001, 64) == 1
    assert profiled(TRUTH, [(1, 0), (4, 0)]).sequences_within(0.001, 64) == 1
    assert profiled(TRUTH, [(8, 0)]).sequences_within(TRUTH.seconds(8) / 2, 64) == 4
