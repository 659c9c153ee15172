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
            doc="Data sets under names of your choice, for the tools `sql` and `retrieve`.",
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns, the answer (null where there is none), the transcript,"
            " `finish_reason` and `turns`, one row per row.",
        ),
    ),
    params=(
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="What the user says: a template over the row's columns.",
        ),
        _OF_GENERATE["messages"],
        _OF_GENERATE["system"],
        Param(
            "tools",
            ParamType.LIST,
            required=True,
            items=TOOLS,
            doc="What the model may use. `calculator`: arithmetic. `sql`: a SELECT over the data"
            " sets, as in `data.sql`. `retrieve`: the rows of a data set that match words best, by"
            " BM25 over its columns of text. `python`: a script in the sandbox of `code.python`, on"
            " pools that allow user code. `http`: a GET of a page of `httpHosts`; the step is then"
            " `external`.",
        ),
        Param(
            "toolChoice",
            ParamType.STRING,
            default="auto",
            choices=("auto", "required"),
            doc="`auto`: the model calls tools as its chat template teaches it, or as a system"
            " message does where it does not. `required`: every turn is held to the form of a call"
            " or of an answer, and the first turn to a call, so that small models call well; needs"
            " vLLM.",
        ),
        Param(
            "toolParser",
            ParamType.STRING,
            added=2,
            doc="vLLM's parser of the model's calls, such as `hermes`, `llama3_json`, `mistral` or"
            " `pythonic`, for models whose calls are neither JSON between `<tool_call>` tags nor"
            " JSON alone; needs vLLM and a chat template that describes tools. What the parser"
            " cannot read is an answer. With `toolChoice: required` it is not used.",
        ),
        Param(
            "maxTurns",
            ParamType.INTEGER,
            default=8,
            minimum=1,
            maximum=64,
            doc="Most completions per row. With `required` the last one is held to an answer.",
        ),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The most tokens of one turn.",
        ),
        Param(
            "maxResultChars",
            ParamType.INTEGER,
            default=2000,
            minimum=16,
            maximum=200_000,
            doc="What a tool returns is cut after so many characters, and says so.",
        ),
        Param(
            "toolTimeoutS",
            ParamType.NUMBER,
            default=20.0,
            minimum=0.1,
            maximum=600,
            doc="Seconds for one call of `sql`, `python` or `http`. Running out of them is an error"
            " that the model is told, so a row may go otherwise on a slower machine.",
        ),
        Param(
            "httpHosts",
            ParamType.LIST,
            default=[],
            doc="The hosts that the tool `http` may ask, redirects included: `docs.example.com`."
            " Their addresses are judged as those of `http.request`.",
        ),
        *(_OF_GENERATE[name] for name in ("temperature", "topP", "topK", "minP")),
        Param(
            "seed",
            ParamType.INTEGER,
            default=0,
            doc="The step's seed; each turn's own follows from it, the conversation so far and the"
            " turn's number.",
        ),
        Param("output", ParamType.STRING, default="answer", doc="The answer's column."),
        Param(
            "transcript",
            ParamType.STRING,
            default="transcript",
            doc="The column of the messages, calls (`tool_calls`: name and arguments) and results"
            " (role `tool`) included.",
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
    doc="Lets a model work on every row with tools, turn by turn: what it calls is run, the result"
    " is put before it, until it answers. The turns of all rows meet in one engine, each joins the"
    " running batch when its tools are done. A tool's error is a result like any other; a row ends"
    " with a `finish_reason`: `answered`, `length` (the answer was cut at maxTokens), `max-turns`,"
    " `context` (the conversation became longer than the model reads) or `bad-call` (three calls"
    " in a row that could not be read). Equal rows are worked on once.",
    examples=(
        'with: {prompt: "{{ question }}", tools: [calculator], toolChoice: required, maxTurns: 4,'
        " temperature: 0, dtype: float32}",
        'with: {messages: [{role: user, content: "{{ question }}"}], tools: [sql, retrieve]}',
    ),
)

CONTRACTS = (AGENT,)
