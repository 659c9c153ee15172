"""Results of engines on fixed inputs, by engine: of those that compute them without a model.

Engines that render templates have what these print, since their prompts are a part of what they
compute; ``llm.score`` has its metrics too.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.dataset.sql_types import column_type
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.identity import effective_params
from flowmesh_store.datasets import read_rows_file, rows_to_chunks
from flowmesh_store.datasets.chunks import type_rows
from flowmesh_worker.engine_api import DatasetInput, Work
from flowmesh_worker.engines.eval.exact_match import ExactMatch
from flowmesh_worker.engines.eval.multiple_choice import MultipleChoice
from flowmesh_worker.engines.eval.pass_at_k import PassAtK
from flowmesh_worker.engines.eval.win_rate import WinRate
from flowmesh_worker.engines.llm.score import _means, _Scored
from flowmesh_worker.engines.llm.verdicts import Verdicts
from flowmesh_worker.engines.prompts import RowTemplate

Row = dict[str, Any]
_ROW = {
    "yes": True,
    "no": False,
    "n": 3,
    "x": 0.1,
    "text": 'Zoë\'s "<b>"',
    "nothing": None,
    "some": ["a", None, 1, 2.5, True],
    "thing": {"b": [1, {"c": None}], "a": False},
}
_TEMPLATES = (
    *("{{ yes }} {{ no }} {{ n }} {{ x }} {{ text }}", "{{ some }} {{ thing }}", "{{ nothing }}"),
    *("{{ some | tojson }} {{ text | tojson }} {{ nothing | tojson }}", "{{ thing | tojson(2) }}"),
    *("{{ yes ~ some }} {{ [yes, 1] | join(',') }}", "{{ some | upper }} {{ yes | string }}"),
    *("{{ some | map('string') }}", "{% for s in some if s %}{{ loop.index }}{{ s }};{% endfor %}"),
)
_FILES = {
    "a.jsonl": b'{"a": 0.1, "b": {"y": 1, "x": [null]}, "c": -0.0}\n\n{"a": 2, "b": [], "c": 1e-5}',
    "digits.jsonl": b'{"a": 0.12345678901234567890}',
    "keys.jsonl": b'{"a": 1, "a": 2}',
    "a.json": b'[{"a": "x"}, {"b": 9007199254740993}]',
    "a.csv": b'a,b,c\n1,"",true\n,x,false\n',
    "digits.csv": b"a\n0.5\n3.141592653589793238\n",
}
_SQL_TYPES = (
    *("JSON", "JSON[]", "STRUCT(a INTEGER)", "STRUCT(a DATE)[]", "MAP(VARCHAR, INTEGER)"),
    *("INTEGER[][]", "BOOLEAN[]", "UNION(a INTEGER)", "DATE", "DATE[]", "DECIMAL(9,2)", "UUID"),
    *("TIMESTAMP WITH TIME ZONE", "HUGEINT", "FLOAT", "ENUM('a')", "BLOB", '"NULL"', "INTERVAL"),
)


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except FlowMeshError as e:
        return f"refused: {e}"


def _templates() -> Any:
    return [_outcome(lambda t=t: RowTemplate(t, "prompt").render(_ROW, 1)) for t in _TEMPLATES]


def _files() -> Any:
    return {
        name: _outcome(lambda n=name, d=data: type_rows(read_rows_file(n, d)).columns)
        for name, data in _FILES.items()
    }


def _sql() -> Any:
    query = "select {'a': 1} s, [{'a': null}] l, map {'k': 2} m, to_json([1, 'x']::varchar[]) j"
    types = [str(t) for t in duckdb.sql(query).types]
    return {t: list(column_type(t)) for t in (*_SQL_TYPES, *types)}


def _evaluated(engine: Any, name: str, cases: list[tuple[dict[str, Any], list[Row]]]) -> Any:
    contract = builtin_catalog().newest(name)
    assert contract is not None
    found = []
    for given, rows in cases:
        manifest, blobs = rows_to_chunks(rows)
        files = tuple(blobs[c.blob] for c in manifest.chunks)
        inputs = {"rows": DatasetInput(manifest, files)}
        params = effective_params(contract, given)
        work = Work("action", "attempt", params, {}, inputs, Path("unused"))
        outputs = asyncio.run(engine.run(work, lambda *_: None)).outputs
        found.append([outputs["metrics"].values, outputs["rows"].rows])
    return found


def _exact_match() -> Any:
    rows: list[Row] = [{"p": "Yes.", "t": "yes"}, {"p": "7", "t": "7.0"}, {"p": None, "t": None}]
    columns = {"prediction": "p", "target": "t"}
    return _evaluated(
        ExactMatch(), "eval.exact-match", [(columns, rows), ({**columns, "normalize": True}, rows)]
    ) + _evaluated(ExactMatch(), "eval.exact-match", [(columns, [])])


def _multiple_choice() -> Any:
    rows: list[Row] = [
        {"choices": ["elm", "oak"], "answer": 1, "said": said}
        for said in ("oak", "(A)", "it is B", "neither")
    ]
    columns = {"completion": "said", "choices": "choices", "answer": "answer", "answerIs": "index"}
    return _evaluated(MultipleChoice(), "eval.multiple-choice", [(columns, rows), (columns, [])])


def _pass_at_k() -> Any:
    rows = [{"q": n % 2, "right": n % 3 == 0} for n in range(8)]
    columns = {"problem": ["q"], "correct": "right", "k": [1, 3]}
    return _evaluated(PassAtK(), "eval.pass-at-k", [(columns, rows), (columns, [])])


def _win_rate() -> Any:
    rows = [{"v": v} for v in ("A", "b", "tie", "A")]
    return _evaluated(WinRate(), "eval.win-rate", [({"verdict": "v"}, rows)])


def _verdicts() -> Any:
    found = []
    answers = ["3", "so", '"a".', "b", "1e999"]
    for params in ({}, {"labels": ["a", "b"]}, {"pattern": "([0-9])"}, {"labels": ["x", "y"]}):
        verdicts = Verdicts(params)
        values = [verdicts.read(answer) for answer in answers]
        kind = ColumnType.STRING if verdicts.labels else ColumnType.FLOAT
        for given in (values, [None]):
            scored = _Scored([{"score": v} for v in given], {"score": kind}, 0, verdicts)
            found.append([given, _means(scored, "score")])
    return [_templates(), found]


RESULTS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(
        (
            *("llm.generate", "llm.embed", "llm.agent", "http.request", "http.chat"),
            *("train.sft", "train.reward", "train.dpo", "train.ppo", "train.grpo"),
        ),
        _templates,
    ),
    "llm.score": _verdicts,
    "dataset.import": _files,
    "data.sql": _sql,
    "eval.exact-match": _exact_match,
    "eval.multiple-choice": _multiple_choice,
    "eval.pass-at-k": _pass_at_k,
    "eval.win-rate": _win_rate,
}
