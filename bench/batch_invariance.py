"""Compares what vLLM's batch-invariant mode promises to be equal; called by ``gpu_check``.

The same requests are answered in different company: alone and with fifteen others in one launch,
with a cold and with a warm prefix cache, and each token once as a step of decoding and once as the
end of a prompt, as it is scored. Tokens and log-probabilities are compared without a tolerance. All
prompts have more than ``LAUNCH_TOKENS`` tokens, where kernels choose other tiles than for a few.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

LAUNCH_TOKENS = 256
ANSWER_TOKENS = 12
_ALONE = 2
"""Prompts that are also answered alone."""
_PROMPTS = 16
_NUMBERS = 100

Row = dict[str, Any]
AnswerRows = Callable[[str, dict[str, Any], Sequence[Row]], list[Row]]
"""Runs an engine, by name and parameters, on rows of one action; returns its rows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine answered.

    Attributes:
        prompt_tokens: of the request.
        tokens: of the answer, as text, with ``logprobs`` of each.
    """

    prompt_tokens: int
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Answers to the same requests in different company.

    Attributes:
        name: what differs.
        count: tokens compared; ``same`` of them and of their log-probabilities are equal.
        difference: the largest of two log-probabilities of the same token.
    """

    name: str
    count: int
    same: int
    difference: float


def prompts() -> list[str]:
    """Returns lists of single digits, which are about three tokens a number everywhere."""
    drawn = random.Random(11)
    return [
        " ".join(f"{drawn.randrange(10)}," for _ in range(_NUMBERS)) + " 1" for _ in range(_PROMPTS)
    ]


def compare(dtype: str, loaded: AnswerRows, fresh: AnswerRows) -> list[Comparison]:
    """Asks two engines the same.

    Args:
        dtype: of the model.
        loaded: asks an engine that has answered nothing, and then the same one.
        fresh: asks another one, once.

    Raises:
        RuntimeError: a prompt is too short to tell anything.
    """

    def ask(engine: AnswerRows, texts: Sequence[str], tokens: int = ANSWER_TOKENS) -> list[Answer]:
        rows = [_request(text, tokens) for text in texts]
        return [answer_of(row) for row in engine("llm.openai", {"dtype": dtype}, rows)]

    texts = prompts()
    cold = [answer for text in texts[:_ALONE] for answer in ask(loaded, [text])]
    if min(answer.prompt_tokens for answer in cold) <= LAUNCH_TOKENS:
        raise RuntimeError(f"the tokenizer makes {LAUNCH_TOKENS} tokens or fewer of a prompt")
    warm = [answer for text in texts[:_ALONE] for answer in ask(loaded, [text])]
    beginnings = [
        [text + "".join(answer.tokens[:count]) for count in range(len(answer.tokens))]
        for text, answer in zip(texts, cold, strict=False)
    ]
    scored = [ask(loaded, some, 1) for some in beginnings]
    together = ask(fresh, texts)[:_ALONE]
    return [
        compared("alone, and among 16 in launches of thousands of tokens", cold, together),
        compared("cold, and warm prefix", cold, warm),
        compared("decoded, and scored as the end of a prompt", *by_token(cold, scored)),
    ]


def by_token(
    decoded: Sequence[Answer], scored: Sequence[Sequence[Answer]]
) -> tuple[list[Answer], list[Answer]]:
    """Pairs each decoded token with the answer to its prompt and the tokens before it.

    Where these tokens, as text, are other tokens to the tokenizer, there is no such answer.
    """
    first, second = list[Answer](), list[Answer]()
    for whole, ends in zip(decoded, scored, strict=True):
        for index, end in enumerate(ends):
            if end.prompt_tokens == whole.prompt_tokens + index:
                of = slice(index, index + 1)
                first.append(Answer(end.prompt_tokens, whole.tokens[of], whole.logprobs[of]))
                second.append(end)
    return first, second


def compared(name: str, first: Sequence[Answer], second: Sequence[Answer]) -> Comparison:
    """Compares answers in pairs, token by token; a missing token is a different one."""
    pairs = [
        (one, other)
        for a, b in zip(first, second, strict=True)
        for one, other in itertools.zip_longest(_tokens(a), _tokens(b))
    ]
    both = [(a, b) for a, b in pairs if a and b and a[0] == b[0]]
    return Comparison(
        name,
        len(pairs),
        sum(a == b for a, b in pairs),
        max((abs(a[1] - b[1]) for a, b in both), default=0.0),
    )


def page(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a table in Markdown."""
    lines = [
        "| the same requests | tokens | equal in all bits | largest difference |",
        "| --- " * 4 + "|",
    ]
    for c in comparisons:
        lines.append(f"| {c.name} | {c.count} | {c.same} | {c.difference:.3g} |")
    return lines


def answer_of(row: Row) -> Answer:
    """Returns the answer of a row of ``llm.openai``.

    Raises:
        RuntimeError: the request was refused.
    """
    response = row["response"]
    if response["status_code"] != HTTPStatus.OK:
        raise RuntimeError(f"a request was refused: {response['body']}")
    found = response["body"]["choices"][0]["logprobs"]
    usage = response["body"]["usage"]
    return Answer(usage["prompt_tokens"], tuple(found["tokens"]), tuple(found["token_logprobs"]))


def _request(prompt: str, max_tokens: int) -> Row:
    body = {
        "model": "m",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "logprobs": 1,
    }
    return {"url": "/v1/completions", "body": body}


def _tokens(answer: Answer) -> Iterator[tuple[str, float]]:
    return zip(answer.tokens, answer.logprobs, strict=True)
