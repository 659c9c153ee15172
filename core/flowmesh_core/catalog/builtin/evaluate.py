"""Contracts of the engines that score rows."""

from flowmesh_core.catalog.contract import (
    EngineContract,
    Metric,
    Param,
    ParamType,
    Port,
    PortKind,
    Reduction,
)
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S
from flowmesh_core.catalog.verifiers import FORMAT, VERIFIERS

_COUNT = Metric("count", ParamType.INTEGER)
_UNPARSED = Metric("unparsed", ParamType.INTEGER)

EXACT_MATCH = EngineContract(
    name="eval.exact-match",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(Port("rows", PortKind.DATASET, doc="Rows with a prediction and a target."),),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.MEAN_BY_COUNT,
            metrics=(Metric("accuracy"), _COUNT),
            doc="`accuracy` in [0, 1], null without rows, and `count`, the rows it is over.",
        ),
        Port("rows", PortKind.DATASET, doc="The input's columns and `correct`."),
    ),
    params=(
        Param(
            "prediction", ParamType.STRING, required=True, columns="one", doc="The column to judge."
        ),
        Param(
            "target", ParamType.STRING, required=True, columns="one", doc="The column it should be."
        ),
        Param(
            "normalize",
            ParamType.BOOLEAN,
            default=False,
            doc="Compare without case, punctuation and white space at the ends.",
        ),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("correct:bool",),
    work_unit="rows",
    doc="Counts the rows whose prediction equals the target.",
    examples=("with: {prediction: answer, target: target}",),
)

_CONFIDENCE = Param(
    "confidence",
    ParamType.NUMBER,
    default=0.95,
    minimum=0.5,
    maximum=0.9999,
    doc="The share of such intervals that hold the true value.",
)

MULTIPLE_CHOICE = EngineContract(
    name="eval.multiple-choice",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(Port("rows", PortKind.DATASET, doc="One question with its choices per row."),),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(
                Metric("accuracy"),
                Metric("accuracy_low"),
                Metric("accuracy_high"),
                _COUNT,
                _UNPARSED,
            ),
            doc="`accuracy` in [0, 1] with its Wilson interval `accuracy_low` and `accuracy_high`,"
            " `count`, and `unparsed`, the completions that no choice was found in.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns, `predicted` (the choice's text, null where there is none) and"
            " `correct`.",
        ),
    ),
    params=(
        Param(
            "choices",
            ParamType.STRING,
            required=True,
            columns="one",
            doc="The column with a question's choices: a list of 2 to 26 different texts.",
        ),
        Param(
            "answer", ParamType.STRING, required=True, columns="one", doc="The right one's column."
        ),
        Param(
            "answerIs",
            ParamType.STRING,
            required=True,
            choices=("index", "letter", "text"),
            doc="What `answer` holds: an index (0 is the first), a letter (A is the first) or the"
            " choice's text.",
        ),
        Param(
            "logprobs",
            ParamType.STRING,
            columns="one",
            doc="A column with a list of numbers, one a choice: the greatest is the prediction, the"
            " first of equal ones.",
        ),
        Param(
            "perCharacter",
            ParamType.BOOLEAN,
            default=False,
            doc="Divide each of `logprobs` by its choice's length in characters first.",
        ),
        Param(
            "completion",
            ParamType.STRING,
            columns="one",
            doc="A column with a text to find the choice in: a letter or a choice's text alone, a"
            ' letter that it settles on ("The answer is B", "B) Paris"), or the text of one choice'
            " and no other. What names none or several is `unparsed`, and wrong.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("logprobs", "completion"),),
    work_unit="rows",
    doc="Scores questions with given choices, by log-probabilities or by what a completion says.",
    examples=(
        "with: {logprobs: scores, choices: choices, answer: answer, answerIs: index}",
        "with: {completion: completion, choices: choices, answer: answer, answerIs: letter}",
    ),
)

PASS_AT_K = EngineContract(
    name="eval.pass-at-k",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="One sample per row, as llm.generate makes with `samples`.",
        ),
    ),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(
                Metric("pass_at_{k}"),
                Metric("pass_at_{k}_low"),
                Metric("pass_at_{k}_high"),
                Metric("problems", ParamType.INTEGER),
                Metric("samples", ParamType.INTEGER),
            ),
            doc="For every k `pass_at_k`, the mean over problems, with `pass_at_k_low` and"
            " `pass_at_k_high` (`pass_at_4_low`, say): Wilson's interval with the effective sample"
            " size that the spread over problems gives; `problems`; `samples`.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="One row per problem: its columns, `samples`, `passed`, and `pass_at_k` for every"
            " k.",
        ),
    ),
    params=(
        Param(
            "problem",
            ParamType.LIST,
            required=True,
            columns="many",
            doc="The columns that name a problem: rows that agree in them are its samples.",
        ),
        Param("correct", ParamType.STRING, columns="one", doc="A column of booleans: who passes."),
        Param(
            "judge",
            ParamType.LIST,
            format=FORMAT,
            doc="Checks that a completion must pass, all of them: objects with a `name`, one of"
            f" {', '.join(f'`{name}`' for name in VERIFIERS)}, and its arguments.",
        ),
        Param("completion", ParamType.STRING, default="completion", doc="What `judge` looks at."),
        Param(
            "k",
            ParamType.LIST,
            default=[1],
            doc="How many samples one may try; a list of whole numbers. No problem may have fewer"
            " samples.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("correct", "judge"),),
    work_unit="rows",
    doc="Estimates how often at least one of k samples solves a problem, by the unbiased estimator"
    " of Chen et al. 2021 (arXiv:2107.03374).",
    examples=(
        "with: {problem: [question], judge: [{name: number-equals, target: target}], k: [1, 4]}",
        "with: {problem: [task], correct: passed, k: [1]}",
    ),
)

WIN_RATE = EngineContract(
    name="eval.win-rate",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port("rows", PortKind.DATASET, doc="One comparison of two answers, a and b, per row."),
    ),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(
                Metric("win_rate"),
                Metric("win_rate_low"),
                Metric("win_rate_high"),
                Metric("wins", ParamType.INTEGER),
                Metric("losses", ParamType.INTEGER),
                Metric("ties", ParamType.INTEGER),
                _COUNT,
                Metric("p_value"),
                _UNPARSED,
                Metric("win_rate_first", with_param="first"),
                Metric("win_rate_second", with_param="first"),
            ),
            doc="`win_rate`, the share of comparisons that a wins, ties counting half, with its"
            " Wilson interval `win_rate_low` and `win_rate_high`; `wins`, `losses`, `ties`,"
            " `count`; `p_value` of the two-sided sign test over wins and losses; `unparsed`, the"
            " verdicts that are none (counted as ties). With `first` also `win_rate_first` and"
            " `win_rate_second`, by where a was shown.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="The comparisons with `outcome`: 1 where a wins, 0.5 for a tie, 0 where b wins."
            " With `pair`, one row per pair.",
        ),
    ),
    params=(
        Param("verdict", ParamType.STRING, columns="one", doc="The column that says which won."),
        Param(
            "scoreA", ParamType.STRING, columns="one", doc="A column of numbers; more is better."
        ),
        Param("scoreB", ParamType.STRING, columns="one", doc="The other's, along with `scoreA`."),
        Param("labelA", ParamType.STRING, default="a", doc="The verdict for a."),
        Param("labelB", ParamType.STRING, default="b", doc="The verdict for b."),
        Param("labelTie", ParamType.STRING, default="tie", doc="The verdict for neither."),
        Param(
            "first",
            ParamType.STRING,
            columns="one",
            doc="A column that says which answer was shown first, as `labelA` or `labelB`. Both"
            " orders then weigh the same, however many rows each has.",
        ),
        Param(
            "verdictNames",
            ParamType.STRING,
            default="answers",
            choices=("answers", "places"),
            doc="Whether `labelA` in a verdict means answer a, or the one that was shown first.",
        ),
        Param(
            "pair",
            ParamType.LIST,
            default=[],
            columns="many",
            doc="Columns that name what was compared. Rows of one pair (both orders, or several"
            " judges) are then one comparison: its outcome is their mean, a win above a half.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("verdict", "scoreA"),),
    work_unit="rows",
    doc="Says how often one of two wins, how sure that is, and whether it could be chance. Rows"
    " that belong together are not independent: name them with `pair`.",
    examples=(
        "with: {verdict: verdict, pair: [question], first: shown_first, verdictNames: places}",
        "with: {scoreA: reward_tuned, scoreB: reward_base}",
    ),
)

CONTRACTS = (EXACT_MATCH, MULTIPLE_CHOICE, PASS_AT_K, WIN_RATE)
