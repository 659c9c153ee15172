"""The contract of the engine that lets a model use tools."""

from flowmesh_core.catalog.builtin.chat_rows import CHAT_ROWS
from flowmesh_core.catalog.builtin.llm import GENERATE
from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
)
from flowmesh_core.catalog.timeouts import HOUR_S

TOOLS = ("calculator", "sql", "retrieve", "python", "http")
_OF_GENERATE = {p.name: p for p in GENERATE.params}

AGENT = EngineContract(
    name="llm.agent",
    version=1,
    implementation=2,
    default_timeout_s=6 * HOUR_S,
    max_timeout_s=48 * HOUR_S,
    inputs=(
        *GENERATE.inputs,
        Port(
            "*",
            PortKind.DATASET,
            required=False,
            doc="Data sets for the tools `sql` and `retrieve`, under names of your choice.",
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="One row for each input row: its columns, the answer (null if there is none), the"
            " transcript, `finish_reason` and `turns`.",
        ),
    ),
    params=(
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="The user's message: a template over the row's columns.",
        ),
        _OF_GENERATE["messages"],
        _OF_GENERATE["system"],
        Param(
            "tools",
            ParamType.LIST,
            required=True,
            items=TOOLS,
            doc="The tools that the model may use. `calculator`: arithmetic. `sql`: a SELECT over"
            " the data sets, as in `data.sql`. `retrieve`: the rows of a data set that best match"
            " some words, by BM25 over its text columns. `python`: a script in the sandbox of"
            " `code.python`, on pools that allow user code. `http`: a GET request to one of"
            " `httpHosts`; the step is then `external`.",
        ),
        Param(
            "toolChoice",
            ParamType.STRING,
            default="auto",
            choices=("auto", "required"),
            doc="`auto`: the model calls tools in the format of its chat template, or, if the"
            " template describes no tools, in the format that a system message describes."
            " `required`: every turn is constrained to be a well-formed call or answer, and the"
            " first turn to be a call, which helps small models; needs vLLM.",
        ),
        Param(
            "toolParser",
            ParamType.STRING,
            added=2,
            doc="The vLLM parser for the model's tool calls, such as `hermes`, `llama3_json`,"
            " `mistral` or `pythonic`. Set it for models that write calls neither as JSON between"
            " `<tool_call>` tags nor as plain JSON. Needs vLLM and a chat template that describes"
            " tools. Text that the parser cannot read is taken as an answer. Not used with"
            " `toolChoice: required`.",
        ),
        Param(
            "maxTurns",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            maximum=64,
            doc="The maximum number of completions for a row. With `toolChoice: required` the last"
            " one is constrained to be an answer.",
        ),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The maximum number of tokens of one turn.",
        ),
        Param(
            "maxResultChars",
            ParamType.INTEGER,
            default=2000,
            minimum=16,
            maximum=200_000,
            doc="The maximum number of characters of a tool's result. A longer result is cut, and"
            " says so.",
        ),
        Param(
            "toolTimeoutS",
            ParamType.NUMBER,
            default=20.0,
            minimum=0.1,
            maximum=600,
            doc="The time limit in seconds of one call of `sql`, `python` or `http`. The model gets"
            " a timeout as an error, so the result of a row can differ on a slower machine.",
        ),
        Param(
            "httpHosts",
            ParamType.LIST,
            default=[],
            doc="The hosts that the tool `http` may call, also after redirects, such as"
            " `docs.example.com`. Their addresses are checked as in `http.request`.",
        ),
        *(_OF_GENERATE[name] for name in ("temperature", "topP", "topK", "minP")),
        Param(
            "seed",
            ParamType.INTEGER,
            default=0,
            doc="The step's seed. The seed of each turn is derived from it, the conversation so far"
            " and the number of the turn.",
        ),
        Param("output", ParamType.STRING, default="answer", doc="The column for the answer."),
        Param(
            "transcript",
            ParamType.STRING,
            default="transcript",
            doc="The column for the messages, including tool calls (`tool_calls`: name and"
            " arguments) and results (role `tool`).",
        ),
        *CHAT_ROWS,
    ),
    minor=2,
    one_of=(("prompt", "messages"),),
    identity_fields=GENERATE.identity_fields,
    determinism=Determinism.SEEDED,
    external_with=(("tools", "http"),),
    user_code_with=(("tools", "python"),),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:string", "$transcript:json", "finish_reason:string", "turns:int"),
    work_unit="tokens",
    needs_gpu_class="accelerator",
    capacity=64,
    base_memory_mib=2560,
    component_memory_factor=1.2,
    doc="Lets a model process every row with tools, turn by turn: the engine runs the tools that"
    " the model calls and gives it the results, until the model answers. The turns of all rows are"
    " batched in one engine; a row joins the running batch again when its tools are done. The error"
    " of a tool is a result like any other. A row ends with a `finish_reason`: `answered`, `length`"
    " (the answer was cut at `maxTokens`), `max-turns`, `context` (the conversation became longer"
    " than the model's context) or `bad-call` (three consecutive calls could not be read). Equal"
    " rows are processed once.",
    examples=(
        'with: {prompt: "{{ question }}", tools: [calculator], toolChoice: required, maxTurns: 4,'
        " temperature: 0, dtype: float32}",
        'with: {messages: [{role: user, content: "{{ question }}"}], tools: [sql, retrieve]}',
    ),
)

CONTRACTS = (AGENT,)
