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
        doc="What comes before the completion, or what the judge is asked; a template.",
    ),
    Param(
        "messages",
        ParamType.LIST,
        template="jinja",
        format="chat",
        doc="A chat in place of a prompt: a list of {role, content}, contents are templates.",
    ),
    Param(
        "system",
        ParamType.STRING,
        template="jinja",
        doc="A system message put before the messages; a template.",
    ),
    Param(
        "completion",
        ParamType.STRING,
        template="jinja",
        doc="What to score after the prompt, or as the chat's last answer; a template.",
    ),
    Param(
        "text",
        ParamType.STRING,
        template="jinja",
        doc="reward: a whole text, as it is, in place of prompt and completion; a template.",
    ),
)
_WEIGHING = (
    Param(
        "choices",
        ParamType.STRING,
        columns="one",
        doc="logprob: a column with a list of texts; each is weighed after the prompt, in place of"
        " the completion.",
    ),
    Param(
        "normalize",
        ParamType.STRING,
        default="none",
        choices=("none", "tokens", "bytes"),
        doc="logprob: divide each sum by the text's tokens (its mean) or UTF-8 bytes.",
    ),
)
_JUDGING = (
    Param(
        "pattern",
        ParamType.STRING,
        format="regex",
        doc="judge: a regular expression with one group, the verdict; its last match in the answer"
        " counts. Without it and jsonSchema the whole answer is the verdict.",
    ),
    Param(
        "jsonSchema",
        ParamType.OBJECT,
        format="json-schema",
        doc="judge: a JSON schema that every answer must satisfy (needs vLLM); one that does not"
        " holds no verdict.",
    ),
    Param(
        "key",
        ParamType.STRING,
        default="score",
        doc="judge: the member of a JSON answer that is the verdict.",
    ),
    Param(
        "labels",
        ParamType.LIST,
        doc="judge: the verdicts there are, compared without case and punctuation around them."
        " Without labels a verdict is a number.",
    ),
    Param(
        "maxTokens",
        ParamType.INTEGER,
        default=256,
        minimum=1,
        maximum=1_000_000,
        doc="judge: the most tokens of an answer.",
    ),
    Param("stop", ParamType.LIST, default=[], doc="judge: strings that end an answer."),
    Param("seed", ParamType.INTEGER, default=0, doc="judge: part of the name; answers are greedy."),
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
            doc="A LoRA adapter on the model; for `reward` it may bring the head.",
        ),
        Port("rows", PortKind.DATASET, doc="The rows to score, one by one."),
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
            doc="`mean` of the scores and `count`, the rows it is over: those with a score. With"
            " labels `share.LABEL` in place of the mean, with choices `count` alone. Null where no"
            " row has a score.",
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
            doc="`rows`, `tokens` read and drawn, and for a judge `unparsed`, the answers without a"
            " verdict, and `label.LABEL`.",
        ),
    ),
    params=(
        Param(
            "method",
            ParamType.STRING,
            required=True,
            choices=("reward", "logprob", "judge"),
            batch_wide=True,
            doc="reward: a reward model's number; logprob: the log-probability of a text; judge:"
            " the verdict that a model gives in words.",
        ),
        *_TEMPLATES,
        Param("output", ParamType.STRING, default="score", doc="The score's column."),
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
    doc="Scores every row. `reward` takes a sequence classification model with one number, such as"
    " `train.reward` makes, and adds the number of `text`, of `prompt` and `completion` (ended by"
    " the end-of-text token, as in training) or of `messages`; `logprob` adds the natural logarithm"
    " of the probability of `completion` after `prompt` or `messages`, or a list of one for each of"
    " `choices`; both add `tokens`, the tokens scored, and work on one sequence at a time with"
    " transformers, so that nothing depends on the batch. `judge` asks `prompt` or `messages` as"
    " `llm.generate` would, greedily, and adds the verdict, null where the answer holds none, and"
    " the whole answer as `verdict`.",
    examples=(
        'with: {method: reward, prompt: "{{ question }}", completion: "{{ answer }}"}',
        'with: {method: logprob, prompt: "Q: {{ question }}\\nA:", completion: " {{ answer }}"}',
        'with: {method: logprob, prompt: "{{ question }} ", choices: options, normalize: bytes}',
        'with: {method: judge, prompt: "Rate from 1 to 5: {{ answer }}\\nRating:", maxTokens: 4,'
        ' pattern: "([1-5])"}',
    ),
)

CONTRACTS = (SCORE,)
