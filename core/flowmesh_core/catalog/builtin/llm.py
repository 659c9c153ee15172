"""Contracts of the engines that run a language model over rows."""

from flowmesh_core.catalog.builtin.chat_rows import CHAT_ROWS
from flowmesh_core.catalog.builtin.sampling import CHAT_STYLE, ENGINE, SAMPLING
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

_MODEL_FIELDS = ("dtype", "batchInvariant", "implementation", "tensorParallel")
_MODEL = Port("model", PortKind.MODEL, component=True, doc="The model that answers.")
_ADAPTER = Port(
    "adapter",
    PortKind.ADAPTER,
    required=False,
    component=True,
    mixable=True,
    doc="A LoRA adapter on the model; requests with different adapters share an engine.",
)
_ROWS = Port("rows", PortKind.DATASET, doc="The rows to work on, one by one.")
_TOP_P = "Sample among the most probable tokens whose probabilities add up to this."

GENERATE = EngineContract(
    name="llm.generate",
    version=1,
    implementation=2,
    default_timeout_s=6 * HOUR_S,
    max_timeout_s=48 * HOUR_S,
    inputs=(_MODEL, _ADAPTER, _ROWS),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns and the completion, one row per sample.",
        ),
    ),
    params=(
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="The text to complete: a template over the row's columns.",
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
            "samples",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            maximum=1024,
            doc="Completions per row, each a row of its own.",
        ),
        Param("output", ParamType.STRING, default="completion", doc="The completion's column."),
        Param(
            "temperature",
            ParamType.NUMBER,
            default=1.0,
            minimum=0,
            maximum=10,
            doc="Sampling temperature; 0 is greedy.",
        ),
        Param("topP", ParamType.NUMBER, default=1.0, minimum=0, maximum=1, doc=_TOP_P),
        Param(
            "topK",
            ParamType.INTEGER,
            default=0,
            minimum=0,
            doc="Sample among this many most probable tokens; 0 is all.",
        ),
        Param(
            "minP",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            maximum=1,
            doc="Sample among tokens at least this probable, relative to the most probable.",
        ),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The most tokens of one completion.",
        ),
        Param("stop", ParamType.LIST, default=[], doc="Strings that end a completion."),
        Param(
            "seed",
            ParamType.INTEGER,
            default=0,
            doc="The step's seed; each sample's own follows from it and the rendered request.",
        ),
        Param(
            "jsonSchema",
            ParamType.OBJECT,
            format="json-schema",
            doc="A JSON schema that every completion must satisfy (needs vLLM). What is drawn is"
            " held to the part that a grammar can say; a completion that violates the rest, or is"
            " cut at `maxTokens`, fails its step as `bad-input`. Patterns are RE2's; `$ref` is"
            " local.",
            implementations=("vllm",),
        ),
        *CHAT_ROWS,
        Param(
            "transcript",
            ParamType.STRING,
            added=1,
            needs=("messages",),
            doc="A column for the chat with its answer: the messages, without `system`, and the"
            " assistant's. A later step reads it with `messagesFrom`.",
        ),
        *SAMPLING,
        *CHAT_STYLE,
        ENGINE,
    ),
    minor=1,
    one_of=(("prompt", "messages"),),
    identity_fields=_MODEL_FIELDS,
    determinism=Determinism.SEEDED,
    row_wise="rows",
    row_output="rows",
    adds_columns=(
        "$output:string",
        "finish_reason:string",
        "sample:int",
        "$transcript:json",
        "$reasoning:string",
    ),
    work_unit="tokens",
    needs_gpu_class="accelerator",
    capacity=64,
    base_memory_mib=2048,
    component_memory_factor=1.2,
    doc="Completes a prompt or answers a chat for every row, one output row per sample. Columns of"
    " the input pass through; added columns replace those of the same name.",
    examples=(
        'with: {prompt: "Q: {{ question }}\\nA:", maxTokens: 48, temperature: 0.8, seed: 7}',
        'with: {messages: [{role: user, content: "{{ question }}"}], samples: 4}',
    ),
)

EMBED = EngineContract(
    name="llm.embed",
    version=1,
    implementation=2,
    default_timeout_s=6 * HOUR_S,
    max_timeout_s=48 * HOUR_S,
    inputs=(_MODEL, _ROWS),
    outputs=(Port("rows", PortKind.DATASET, doc="The input's columns and the vector."),),
    params=(
        Param(
            "text",
            ParamType.STRING,
            template="jinja",
            doc="The text to embed: a template over the row's columns.",
        ),
        Param("column", ParamType.STRING, columns="one", doc="A column to embed as it is."),
        Param("output", ParamType.STRING, default="embedding", doc="The vector's column."),
        Param(
            "pooling",
            ParamType.STRING,
            default="mean",
            choices=("mean", "last", "cls", "auto"),
            batch_wide=True,
            doc="How the tokens' vectors become one; `auto` is the model's own way, as vLLM reads"
            " it, and needs `implementation: vllm`.",
        ),
        Param("normalize", ParamType.BOOLEAN, default=True, doc="Scale vectors to length 1."),
    ),
    one_of=(("text", "column"),),
    identity_fields=("dtype", "implementation"),
    minor=1,
    added_fields=(("implementation", 1),),
    field_defaults=(("implementation", "transformers"),),
    sampled_with=(("implementation", "vllm"),),
    determinism=Determinism.SEEDED,
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:list<float>",),
    work_unit="tokens",
    needs_gpu_class="accelerator",
    capacity=64,
    base_memory_mib=2048,
    component_memory_factor=1.2,
    doc="Adds a vector (a list of floats) to every row. With `implementation: transformers`, the"
    " default, each text goes through the model alone, so that a vector never depends on the batch."
    " With `vllm` texts are batched, and the last digits of a vector depend on the batch.",
    examples=(
        'with: {text: "{{ question }}"}',
        "with: {column: question, pooling: last}",
        "with: {column: question, implementation: vllm, pooling: auto}",
    ),
)

OPENAI = EngineContract(
    name="llm.openai",
    version=1,
    implementation=1,
    default_timeout_s=6 * HOUR_S,
    max_timeout_s=48 * HOUR_S,
    inputs=(_MODEL, _ROWS),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns and the response, `{status_code, body}`.",
        ),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.SUM,
            metrics=(
                Metric("completed", ParamType.INTEGER),
                Metric("failed", ParamType.INTEGER),
            ),
            doc="`completed` and `failed`, numbers of rows.",
        ),
    ),
    params=(
        Param(
            "url",
            ParamType.STRING,
            default="url",
            columns="one",
            doc="The column with the path of the request, such as `/v1/chat/completions`.",
        ),
        Param(
            "body",
            ParamType.STRING,
            default="body",
            columns="one",
            doc="The column with the request's JSON body.",
        ),
        Param("output", ParamType.STRING, default="response", doc="The response's column."),
        Param(
            "task",
            ParamType.STRING,
            default="generate",
            choices=("generate", "embed"),
            batch_wide=True,
            added=1,
            doc="What the model is loaded for: `generate` answers `/v1/chat/completions` and"
            " `/v1/completions`, `embed` answers `/v1/embeddings`.",
        ),
    ),
    minor=1,
    identity_fields=("dtype", "batchInvariant", "tensorParallel"),
    determinism=Determinism.SAMPLED,
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:json",),
    work_unit="tokens",
    needs_gpu_class="accelerator",
    capacity=64,
    base_memory_mib=2048,
    component_memory_factor=1.2,
    doc="Answers each row as a request to OpenAI's API, with vLLM's own serving classes: chat"
    " templates, log-probabilities and usage are vLLM's. A request that is refused is a response"
    " with its error, and does not fail the step. A body without a seed has one that follows from"
    " it; `id` and `created` follow from the request, too. So does the text; log-probabilities are"
    " the same to about four digits, since they depend on the batch.",
    examples=("with: {url: url, body: body}",),
)

CONTRACTS = (GENERATE, EMBED, OPENAI)
