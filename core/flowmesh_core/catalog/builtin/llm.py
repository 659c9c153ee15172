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
    doc="A LoRA adapter for the model; requests with different adapters share an engine.",
)
_ROWS = Port("rows", PortKind.DATASET, doc="The rows to process, one at a time.")
_TOP_P = "Sample only from the most probable tokens whose probabilities add up to this."

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
            doc="One row for each sample: the columns of its input row, and the completion.",
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
            "samples",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            maximum=1024,
            doc="The number of completions for each row; each is a row of the output.",
        ),
        Param(
            "output", ParamType.STRING, default="completion", doc="The column for the completion."
        ),
        Param(
            "temperature",
            ParamType.NUMBER,
            default=1.0,
            minimum=0,
            maximum=10,
            doc="The sampling temperature; 0 is greedy decoding.",
        ),
        Param("topP", ParamType.NUMBER, default=1.0, minimum=0, maximum=1, doc=_TOP_P),
        Param(
            "topK",
            ParamType.INTEGER,
            default=0,
            minimum=0,
            doc="Sample only from this many of the most probable tokens; 0 is all.",
        ),
        Param(
            "minP",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            maximum=1,
            doc="Sample only from tokens whose probability is at least this share of that of the"
            " most probable token.",
        ),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The maximum number of tokens of one completion.",
        ),
        Param("stop", ParamType.LIST, default=[], doc="Strings that end a completion."),
        Param(
            "seed",
            ParamType.INTEGER,
            default=0,
            doc="The step's seed. The seed of each sample is derived from it and the rendered"
            " request.",
        ),
        Param(
            "jsonSchema",
            ParamType.OBJECT,
            format="json-schema",
            doc="A JSON schema that every completion must satisfy (needs vLLM). Sampling is"
            " constrained to the part of the schema that a grammar can express. A completion that"
            " violates the rest, or that is cut at `maxTokens`, fails its step as `bad-input`."
            " Patterns use RE2 syntax, and `$ref` must be local.",
            implementations=("vllm",),
        ),
        *CHAT_ROWS,
        Param(
            "transcript",
            ParamType.STRING,
            added=1,
            needs=("messages",),
            doc="A column for the chat with its answer: the messages, without `system`, followed by"
            " the assistant's. A later step can read it with `messagesFrom`.",
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
    doc="Completes a prompt or answers a chat for every row. The output has one row for each"
    " sample, with the columns of the input; an added column replaces an input column of the same"
    " name.",
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
        Param(
            "column",
            ParamType.STRING,
            columns="one",
            doc="A column with the text to embed, instead of a template.",
        ),
        Param("output", ParamType.STRING, default="embedding", doc="The column for the vector."),
        Param(
            "pooling",
            ParamType.STRING,
            default="mean",
            choices=("mean", "last", "cls", "auto"),
            batch_wide=True,
            doc="How the vectors of the tokens are combined into one. `auto` is the model's own"
            " pooling, as vLLM reads it from the model, and needs `implementation: vllm`.",
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
    " default, each text is processed alone, so that its vector never depends on the batch. With"
    " `vllm`, texts are batched, and the last digits of a vector depend on the batch.",
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
            doc="`completed` and `failed`, the numbers of such rows.",
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
        Param("output", ParamType.STRING, default="response", doc="The column for the response."),
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
    " templates, log-probabilities and usage are vLLM's. A refused request gets a response with its"
    " error, and does not fail the step. If the body has no seed, one is derived from it; `id` and"
    " `created` are derived from the request too. The text is determined by the request;"
    " log-probabilities repeat to about four digits, since they depend on the batch.",
    examples=("with: {url: url, body: body}",),
)

CONTRACTS = (GENERATE, EMBED, OPENAI)
