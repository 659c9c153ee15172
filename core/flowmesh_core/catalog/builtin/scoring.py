"""The contract of the engine that scores rows with a language model."""

from flowmesh_core.catalog.builtin.chat_rows import CHAT_ROWS
from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Metric,
    Param,
    ParamType,
    Port,
    PortKind,
    Reduction,
)
from flowmesh_core.catalog.timeouts import HOUR_S

_TEMPLATES = (
    Param(
        "prompt",
        ParamType.STRING,
        template="jinja",
        doc="The text before the completion, or the question for the judge; a template.",
    ),
    Param(
        "messages",
        ParamType.LIST,
        template="jinja",
        format="chat",
        doc="A chat instead of a prompt: a list of {role, content}, where each content is a"
        " template.",
    ),
    Param(
        "system",
        ParamType.STRING,
        template="jinja",
        doc="A system message that is put before the messages; a template.",
    ),
    Param(
        "completion",
        ParamType.STRING,
        template="jinja",
        doc="The text to score, after the prompt or as the last answer of the chat; a template.",
    ),
    Param(
        "text",
        ParamType.STRING,
        template="jinja",
        doc="reward: a whole text to score as it is, instead of prompt and completion; a template.",
    ),
)
_WEIGHING = (
    Param(
        "choices",
        ParamType.STRING,
        columns="one",
        doc="logprob: a column with a list of texts to score after the prompt, instead of the"
        " completion.",
    ),
    Param(
        "normalize",
        ParamType.STRING,
        default="none",
        choices=("none", "tokens", "bytes"),
        doc="logprob: divide the sum of log-probabilities by the number of tokens (which gives the"
        " mean) or of UTF-8 bytes of the text.",
    ),
)
_JUDGING = (
    Param(
        "pattern",
        ParamType.STRING,
        format="regex",
        doc="judge: a regular expression whose one group is the verdict; its last match in the"
        " answer counts. Without `pattern` and `jsonSchema` the whole answer is the verdict.",
    ),
    Param(
        "jsonSchema",
        ParamType.OBJECT,
        format="json-schema",
        doc="judge: a JSON schema that every answer must satisfy (needs vLLM). An answer that does"
        " not satisfy it has no verdict.",
    ),
    Param(
        "key",
        ParamType.STRING,
        default="score",
        doc="judge: the member of a JSON answer that holds the verdict.",
    ),
    Param(
        "labels",
        ParamType.LIST,
        doc="judge: the possible verdicts, compared without case and without punctuation around"
        " them. Without labels a verdict is a number.",
    ),
    Param(
        "maxTokens",
        ParamType.INTEGER,
        default=256,
        minimum=1,
        maximum=1_000_000,
        doc="judge: the maximum number of tokens of an answer.",
    ),
    Param("stop", ParamType.LIST, default=[], doc="judge: strings that end an answer."),
    Param(
        "seed",
        ParamType.INTEGER,
        default=0,
        doc="judge: part of the action's identity. It does not change answers, which are decoded"
        " greedily.",
    ),
)

SCORE = EngineContract(
    name="llm.score",
    version=1,
    implementation=2,
    default_timeout_s=6 * HOUR_S,
    max_timeout_s=48 * HOUR_S,
    inputs=(
        Port("model", PortKind.MODEL, component=True, doc="The model that scores."),
        Port(
            "adapter",
            PortKind.ADAPTER,
            required=False,
            component=True,
            mixable=True,
            doc="A LoRA adapter for the model; for `reward` it may include the scoring head.",
        ),
        Port("rows", PortKind.DATASET, doc="The rows to score, one at a time."),
    ),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The input's columns and the score."),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.MEAN_BY_COUNT,
            metrics=(
                Metric("mean", without_param="labels", only_with=("choices", None)),
                Metric("share.{labels}"),
                Metric("count", ParamType.INTEGER),
            ),
            doc="`mean`, of the scores, and `count`, the number of rows with a score. With"
            " `labels`, `share.LABEL` instead of the mean; with `choices`, only `count`. Values"
            " other than `count` are null if no row has a score.",
        ),
        Port(
            "counts",
            PortKind.METRICS,
            reduction=Reduction.SUM,
            metrics=(
                Metric("rows", ParamType.INTEGER),
                Metric("tokens", ParamType.INTEGER),
                Metric("unparsed", ParamType.INTEGER, only_with=("method", "judge")),
                Metric("label.{labels}", ParamType.INTEGER),
            ),
            doc="`rows`; `tokens`, read and generated; for a judge also `unparsed`, the number of"
            " answers without a verdict, and `label.LABEL`, the number of answers with each label.",
        ),
    ),
    params=(
        Param(
            "method",
            ParamType.STRING,
            required=True,
            choices=("reward", "logprob", "judge"),
            batch_wide=True,
            doc="reward: the score of a reward model; logprob: the log-probability of a text;"
            " judge: the verdict that a model writes.",
        ),
        *_TEMPLATES,
        Param("output", ParamType.STRING, default="score", doc="The column for the score."),
        *_WEIGHING,
        *_JUDGING,
        *CHAT_ROWS,
    ),
    minor=1,
    identity_fields=("dtype", "batchInvariant", "implementation", "tensorParallel"),
    determinism=Determinism.SEEDED,
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output", "tokens", "verdict:string"),
    work_unit="tokens",
    needs_gpu_class="accelerator",
    capacity=64,
    base_memory_mib=2048,
    component_memory_factor=1.2,
    doc="Scores every row. `reward` needs a sequence classification model with one output, as"
    " `train.reward` makes, and adds its score of `text`, of `prompt` and `completion` (followed by"
    " the end-of-text token, as in training) or of `messages`. `logprob` adds the natural logarithm"
    " of the probability of `completion` after `prompt` or `messages`, or a list of one such number"
    " for each of `choices`. Both add `tokens`, the number of scored tokens, and process one"
    " sequence at a time with transformers, so that results do not depend on the batch. `judge`"
    " completes `prompt` or answers `messages` as `llm.generate` would, greedily, and adds the"
    " verdict (null if the answer has none) as the score and the whole answer as `verdict`.",
    examples=(
        'with: {method: reward, prompt: "{{ question }}", completion: "{{ answer }}"}',
        'with: {method: logprob, prompt: "Q: {{ question }}\\nA:", completion: " {{ answer }}"}',
        'with: {method: logprob, prompt: "{{ question }} ", choices: options, normalize: bytes}',
        'with: {method: judge, prompt: "Rate from 1 to 5: {{ answer }}\\nRating:", maxTokens: 4,'
        ' pattern: "([1-5])"}',
    ),
)

CONTRACTS = (SCORE,)
