"""The verifiers of the catalogue: pure functions of a completion, a row and arguments.

``compile_checks`` turns the parameter's data into functions once for each action; admission has
refused unknown names. Each function returns 1.0 or 0.0, or None if the row has no target (a null),
which omits that check for that completion.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import regex

from flowmesh_core.catalog.verifiers import NAME
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.eval.choice_text import read_choice
from flowmesh_worker.engines.eval.exact_match import same
from flowmesh_worker.engines.json_schemas import JsonSchema
from flowmesh_worker.engines.verifiers.final_number import final_number, same_number

Judge = Callable[["JudgedCompletion", Mapping[str, Any]], float | None]
_LETTERS_ALONE = ("",) * 10
_SEARCH_S = 1.0
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JudgedCompletion:
    """A completion to judge.

    Attributes:
        text: the decoded text, without special tokens.
        tokens: number of generated tokens, including the last one.
    """

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class VerifierCheck:
    """One verifier with its arguments, compiled."""

    name: str
    judge: Judge


def compile_checks(given: Sequence[Mapping[str, Any]]) -> tuple[VerifierCheck, ...]:
    """Compiles a list of verifiers, in order."""
    return tuple(VerifierCheck(str(c[NAME]), _MAKERS[str(c[NAME])](c)) for c in given)


def _number_equals(args: Mapping[str, Any]) -> Judge:
    column, tolerance = args["target"], float(args.get("tolerance", 0.0))

    def judge(completion: JudgedCompletion, row: Mapping[str, Any]) -> float | None:
        wanted = final_number(row[column])
        if wanted is None:
            return None
        found = final_number(completion.text)
        return float(found is not None and same_number(found, wanted, tolerance))

    return judge


def _choice_equals(args: Mapping[str, Any]) -> Judge:
    column, choices = args["target"], args.get("choices")

    def judge(completion: JudgedCompletion, row: Mapping[str, Any]) -> float | None:
        texts = _LETTERS_ALONE if choices is None else tuple(map(str, row[choices] or ()))
        wanted = _choice(row[column], texts)
        return None if wanted is None else float(read_choice(completion.text, texts) == wanted)

    return judge


def _choice(target: Any, texts: Sequence[str]) -> int | None:
    """Returns the index of the row's correct choice, or None if the row has none."""
    if isinstance(target, int) and not isinstance(target, bool):
        return target if 0 <= target < len(texts) else None
    if not isinstance(target, str) or not target.strip():
        return None
    return texts.index(target) if target in texts else read_choice(target, texts)


def _equals(args: Mapping[str, Any]) -> Judge:
    column, normalize = args["target"], bool(args.get("normalize", False))

    def judge(completion: JudgedCompletion, row: Mapping[str, Any]) -> float | None:
        wanted = row[column]
        if wanted is None:
            return None
        wanted = wanted.strip() if isinstance(wanted, str) else wanted
        return float(same(completion.text.strip(), wanted, normalize=normalize))

    return judge


def _contains(args: Mapping[str, Any]) -> Judge:
    column, normalize = args["target"], bool(args.get("normalize", False))

    def judge(completion: JudgedCompletion, row: Mapping[str, Any]) -> float | None:
        wanted = row[column]
        if wanted is None or wanted == "":
            return None
        texts = (str(wanted), completion.text)
        if normalize:
            texts = (_plain(texts[0]), _plain(texts[1]))
        return float(texts[0] in texts[1])

    return judge


def _matches(args: Mapping[str, Any]) -> Judge:
    pattern = regex.compile(args["pattern"])

    def judge(completion: JudgedCompletion, _: Mapping[str, Any]) -> float:
        try:
            return float(pattern.search(completion.text, timeout=_SEARCH_S) is not None)
        except TimeoutError as e:
            raise AttemptError(
                Failure(
                    FailureKind.BAD_INPUT,
                    f"{args['pattern']!r} searches a completion for more than {_SEARCH_S:g} s",
                    "write a pattern without nested repetitions",
                )
            ) from e

    return judge


def _json_valid(args: Mapping[str, Any]) -> Judge:
    schema = args.get("schema")
    compiled = None if schema is None else JsonSchema(schema, "schema")

    def judge(completion: JudgedCompletion, _: Mapping[str, Any]) -> float:
        text = completion.text.strip()
        fenced = _FENCE.match(text)
        try:
            value = orjson.loads(fenced.group(1) if fenced else text)
        except orjson.JSONDecodeError:
            return 0.0
        return float(compiled is None or not compiled.problem_of(value, len(text)))

    return judge


def _length_at_most(args: Mapping[str, Any]) -> Judge:
    if "tokens" in args:
        most = int(args["tokens"])
        return lambda completion, _: float(completion.tokens <= most)
    most = int(args["characters"])
    return lambda completion, _: float(len(completion.text) <= most)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Judge]] = {
    "number-equals": _number_equals,
    "choice-equals": _choice_equals,
    "equals": _equals,
    "contains": _contains,
    "matches": _matches,
    "json-valid": _json_valid,
    "length-at-most": _length_at_most,
}
