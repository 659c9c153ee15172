"""Templates over rows: rendered prompts and refusals."""

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.chat_messages import Message
from flowmesh_worker.engines.llm.requests import Sampling, sample_seed
from flowmesh_worker.engines.prompts import MAX_CHARS, Prompt


def refused(params: dict[str, object], row: dict[str, object] | None = None) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        Prompt(params).render(row or {}, 3)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    return caught.value


def test_a_prompt_reads_columns_by_name_and_through_row_if_not_an_identifier() -> None:
    prompt = Prompt({"prompt": "Q: {{ q }} {{ row['my col'] }}\n"})
    assert prompt.render({"q": "why", "my col": 3}, 1).text == "Q: why 3\n"


def test_a_chat_puts_the_system_message_first_and_renders_each_content() -> None:
    prompt = Prompt({"messages": [{"role": "user", "content": "{{ q }}?"}], "system": "Be {{ s }}"})
    rendered = prompt.render({"q": "why", "s": "brief"}, 1)
    assert rendered.messages == (Message("system", "Be brief"), Message("user", "why?"))


def test_a_missing_field_is_reported_with_row_field_and_existing_columns() -> None:
    error = refused({"prompt": "{{ question }}"}, {"q": "x", "target": "y"})
    assert "row 3" in str(error)
    assert "'question' is undefined" in str(error)
    assert "columns are q, target" in str(error)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({}, "either prompt or messages"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "exactly one"),
        ({"prompt": "a", "system": "b"}, "with.system needs with.messages"),
        ({"prompt": "{{ a"}, "not a valid template"),
        ({"messages": []}, "not a list of messages"),
        ({"messages": [{"role": "user"}]}, "messages[0] is not a message"),
        ({"messages": [{"role": "user", "content": "{% if %}"}]}, "messages[0].content"),
        ({"prompt": "{{ 1 // 0 }}"}, "ZeroDivisionError"),
        ({"prompt": "{{ q.__class__.__mro__ }}"}, "fails for row 3|undefined"),
        ({"prompt": "{% for a in q %}" * 21 + "{% endfor %}" * 21}, "nested too deeply"),
        ({"prompt": "{{ " + "not " * 300 + "q }}"}, "nested too deeply"),
        ({"prompt": "{{ 'x' * 900000 ~ 'x' * 200000 }}"}, "more than 1,000,000 characters made"),
        ({"prompt": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"}, "calls itself without end"),
    ],
)
def test_an_invalid_prompt_is_refused_with_the_reason(params: dict[str, object], says: str) -> None:
    import re

    assert re.search(says.replace("[", r"\["), str(refused(params, {"q": "x"})))


def test_an_endless_template_loop_is_stopped_by_its_output_size() -> None:
    loop = "{% for i in range(90000) %}" + "x" * 1000 + "{% endfor %}"
    assert f"{MAX_CHARS:,}" in str(refused({"prompt": loop}))


def test_a_row_of_five_megabytes_is_refused_before_it_is_tokenised() -> None:
    assert "shorten" in str(refused({"prompt": "{{ q }}"}, {"q": "x" * 5_000_000}))


def test_a_sample_seed_follows_from_step_seed_request_and_sample_alone() -> None:
    seeds = {sample_seed(s, r, j) for s in (0, 1, -1) for r in (b"a", b"b") for j in range(3)}
    assert len(seeds) == 18
    assert all(0 <= s < 2**63 for s in seeds)
    assert sample_seed(7, b"the prompt", 2) == 4_843_952_524_795_799_342  # frozen
    assert sample_seed(1, b"2", 3) != sample_seed(1, b"", 23)


def test_a_text_and_a_chat_never_share_a_seed() -> None:
    text = Prompt({"prompt": '[["user","hi"]]'}).render({}, 1).canonical()
    chat = Prompt({"messages": [{"role": "user", "content": "hi"}]}).render({}, 1).canonical()
    assert text != chat


@pytest.mark.parametrize("params", [{"temperature": 0, "topK": 40, "topP": 0.9}, {"topP": 0}])
def test_greedy_decoding_is_seeded_sampling_with_top_k_one(params: dict[str, object]) -> None:
    sampling = Sampling.from_params(params)
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (1.0, 1, 1.0)
