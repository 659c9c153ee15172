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
            doc="`accuracy` from 0 to 1, null if there are no rows, and `count`, the number of"
            " rows.",
        ),
        Port("rows", PortKind.DATASET, doc="The input's columns and `correct`, a boolean."),
    ),
    params=(
        Param(
            "prediction",
            ParamType.STRING,
            required=True,
            columns="one",
            doc="The column with the prediction.",
        ),
        Param(
            "target",
            ParamType.STRING,
            required=True,
            columns="one",
            doc="The column with the expected value.",
        ),
        Param(
            "normalize",
            ParamType.BOOLEAN,
            default=False,
            doc="Ignore case, and punctuation and white space at both ends.",
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
    doc="The confidence level of the intervals.",
)

MULTIPLE_CHOICE = EngineContract(
    name="eval.multiple-choice",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port("rows", PortKind.DATASET, doc="Rows that each have a question with its choices."),
    ),
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
            doc="`accuracy` from 0 to 1 (null if there are no rows) with its Wilson interval,"
            " `accuracy_low` and `accuracy_high`; `count`, the number of rows; `unparsed`, the"
            " number of completions in which no choice was found.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns, `predicted` (the text of the choice, null if there is none)"
            " and `correct`.",
        ),
    ),
    params=(
        Param(
            "choices",
            ParamType.STRING,
            required=True,
            columns="one",
            doc="The column with the choices of the question: a list of 2 to 26 different texts.",
        ),
        Param(
            "answer",
            ParamType.STRING,
            required=True,
            columns="one",
            doc="The column with the correct choice.",
        ),
        Param(
            "answerIs",
            ParamType.STRING,
            required=True,
            choices=("index", "letter", "text"),
            doc="What the column `answer` holds: an index (0 is the first choice), a letter (A is"
            " the first choice) or the text of the choice.",
        ),
        Param(
            "logprobs",
            ParamType.STRING,
            columns="one",
            doc="A column with a list of numbers, one for each choice. The choice with the greatest"
            " number is the prediction; of equal ones, the first.",
        ),
        Param(
            "perCharacter",
            ParamType.BOOLEAN,
            default=False,
            doc="First divide each number of `logprobs` by the length of its choice in characters.",
        ),
        Param(
            "completion",
            ParamType.STRING,
            columns="one",
            doc="A column with a text that names a choice: only a letter or only the text of a"
            ' choice, a letter that the text settles on ("The answer is B", "B) Paris"), or a text'
            " that contains exactly one of the choices. A text that names no choice or several"
            " counts as `unparsed`, and as wrong.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("logprobs", "completion"),),
    work_unit="rows",
    doc="Scores multiple-choice questions, by the log-probabilities of the choices or by the text"
    " of a completion.",
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
            doc="Rows that each have one sample, as `llm.generate` returns with `samples`.",
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
            doc="For every k, `pass_at_k`, the mean over problems, with `pass_at_k_low` and"
            " `pass_at_k_high` (such as `pass_at_4_low`), a Wilson interval whose effective sample"
            " size comes from the spread over problems; and `problems` and `samples`, the numbers"
            " of both.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="One row for each problem: its columns, `samples`, `passed`, and `pass_at_k` for"
            " every k.",
        ),
    ),
    params=(
        Param(
            "problem",
            ParamType.LIST,
            required=True,
            columns="many",
            doc="The columns that identify a problem. Rows with the same values in them are its"
            " samples.",
        ),
        Param(
            "correct",
            ParamType.STRING,
            columns="one",
            doc="A column of booleans: whether the sample passes.",
        ),
        Param(
            "judge",
            ParamType.LIST,
            format=FORMAT,
            doc="A list of checks, all of which a completion must pass: objects with a `name`, one"
            f" of {', '.join(f'`{name}`' for name in VERIFIERS)}, and the arguments of that check."
            " `train.grpo` describes them at `reward_funcs`.",
        ),
        Param(
            "completion",
            ParamType.STRING,
            default="completion",
            doc="The column with the text that `judge` checks.",
        ),
        Param(
            "k",
            ParamType.LIST,
            default=[1],
            doc="A list of values of k, the number of samples that may be tried. Every problem must"
            " have at least as many samples.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("correct", "judge"),),
    work_unit="rows",
    doc="Estimates how often at least one of k samples solves a problem, with the unbiased"
    " estimator of Chen et al. 2021 (arXiv:2107.03374).",
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
    inputs=(Port("rows", PortKind.DATASET, doc="Rows that each compare two answers, a and b."),),
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
            doc="`win_rate`, the share of comparisons that a wins (a tie counts half), with its"
            " Wilson interval, `win_rate_low` and `win_rate_high`; `wins`, `losses`, `ties`,"
            " `count`; `p_value`, of the two-sided sign test over wins and losses; `unparsed`, the"
            " number of verdicts that match no label (they count as ties). With `first`, also"
            " `win_rate_first` and `win_rate_second`, the win rates of a when it was shown first"
            " and second.",
        ),
        Port(
            "rows",
            PortKind.DATASET,
            doc="The comparisons with `outcome`: 1 if a wins, 0.5 for a tie, 0 if b wins. With"
            " `pair`, one row for each pair.",
        ),
    ),
    params=(
        Param(
            "verdict", ParamType.STRING, columns="one", doc="The column that says which answer won."
        ),
        Param(
            "scoreA",
            ParamType.STRING,
            columns="one",
            doc="A column with the score of answer a, a number; the higher score wins. Needs"
            " `scoreB`.",
        ),
        Param(
            "scoreB",
            ParamType.STRING,
            columns="one",
            doc="A column with the score of answer b. Needs `scoreA`.",
        ),
        Param("labelA", ParamType.STRING, default="a", doc="The verdict that means a wins."),
        Param("labelB", ParamType.STRING, default="b", doc="The verdict that means b wins."),
        Param("labelTie", ParamType.STRING, default="tie", doc="The verdict that means a tie."),
        Param(
            "first",
            ParamType.STRING,
            columns="one",
            doc="A column that says which answer was shown first, as `labelA` or `labelB`. Both"
            " orders then have the same weight, however many rows each has.",
        ),
        Param(
            "verdictNames",
            ParamType.STRING,
            default="answers",
            choices=("answers", "places"),
            doc="Whether `labelA` in a verdict means answer a (`answers`), or the answer that was"
            " shown first (`places`).",
        ),
        Param(
            "pair",
            ParamType.LIST,
            default=[],
            columns="many",
            doc="Columns that identify what was compared. Rows with the same values in them (both"
            " orders, or several judges) are then one comparison, which answer a wins if the mean"
            " of their outcomes is above 0.5.",
        ),
        _CONFIDENCE,
    ),
    one_of=(("verdict", "scoreA"),),
    work_unit="rows",
    doc="Computes how often one of two answers wins, with a confidence interval and a test of"
    " significance. Rows that belong together are not independent: group them with `pair`.",
    examples=(
        "with: {verdict: verdict, pair: [question], first: shown_first, verdictNames: places}",
        "with: {scoreA: reward_tuned, scoreB: reward_base}",
    ),
)

CONTRACTS = (EXACT_MATCH, MULTIPLE_CHOICE, PASS_AT_K, WIN_RATE)
