"""Contracts of the engines that call servers of the user's choice."""

from flowmesh_core.catalog.builtin.chat_rows import CHAT_ROWS
from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
)
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

_ROWS = Port("rows", PortKind.DATASET, doc="The rows to work on, one by one.")
_HEADERS = Param(
    "headers",
    ParamType.OBJECT,
    template="jinja",
    doc="Headers by name; values are templates. They are part of the action's name and of what"
    " is stored: use `secret` for what must not be.",
)
_CALLING = (
    Param(
        "secret",
        ParamType.STRING,
        format="secret",
        doc="The name of a secret that authorises the call. Its value is sent to the worker for"
        " this attempt alone and stands in no name, log, error or output.",
    ),
    Param(
        "secretHeader",
        ParamType.STRING,
        default="Authorization: Bearer",
        doc="The header that carries the secret, and what stands before it, such as `X-Api-Key`"
        " or `Authorization: Basic`.",
    ),
    Param(
        "timeoutS",
        ParamType.NUMBER,
        default=60.0,
        minimum=0.1,
        maximum=3600,
        doc="Seconds for one try.",
    ),
    Param(
        "maxConcurrency",
        ParamType.INTEGER,
        default=8,
        minimum=1,
        maximum=64,
        doc="Calls at once of one server from one engine process (several workers have several).",
    ),
    Param(
        "retries",
        ParamType.INTEGER,
        default=3,
        minimum=0,
        maximum=10,
        doc="Further tries after a broken connection, a timeout, or the status 408, 425, 429,"
        " 500, 502, 503 or 504; they wait as long as `Retry-After` asks (at most 60 s), else 0.5 s"
        " and twice as long each time. What must not be repeated is tried again only where no byte"
        " of it was sent.",
    ),
    Param(
        "maxBytes",
        ParamType.INTEGER,
        default=1 << 20,
        minimum=1,
        maximum=1 << 26,
        doc="The most that one answer may have.",
    ),
    Param(
        "onError",
        ParamType.STRING,
        default="fail",
        choices=("fail", "record"),
        doc="What a call does that ends without a status from 200 to 299, or with an answer that"
        " cannot be read: `fail` the action, or `record` it in `http_error` and go on. An action is"
        " a chunk of rows: where one call fails it, others of the chunk may have been made.",
    ),
)
_RULES = (
    " Addresses are judged when they are connected to, at each redirect too: private, loopback and"
    " link-local ones are refused unless an administrator opened them with `FLOWMESH_HTTP_ALLOW`,"
    " and `http:` is refused but for those. Every call carries an `Idempotency-Key` that is the"
    " same in every try. Results are reused within their run alone."
)

REQUEST = EngineContract(
    name="http.request",
    version=1,
    implementation=2,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    timeout_param="timeoutS",
    inputs=(_ROWS,),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns, the answer, `http_status` and `http_error` (null where there"
            " is none).",
        ),
    ),
    params=(
        Param(
            "url",
            ParamType.STRING,
            required=True,
            template="jinja",
            doc="A template over the row's columns; write `{{ x | urlencode }}` for values. With a"
            " `secret` its host is written out.",
        ),
        Param(
            "method",
            ParamType.STRING,
            default="GET",
            choices=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
            doc="Redirects are followed for GET and HEAD alone.",
        ),
        _HEADERS,
        Param("body", ParamType.STRING, template="jinja", doc="The content: a template."),
        Param(
            "json",
            ParamType.ANY,
            template="jinja",
            doc="The content as JSON, in place of `body`: a value whose strings are templates (and"
            " stay strings; for other types write `body` with `{{ x | tojson }}`).",
        ),
        Param(
            "parse",
            ParamType.STRING,
            default="text",
            choices=("text", "json"),
            doc="Whether the answer's column holds its text, or the value that it is as JSON.",
        ),
        Param("output", ParamType.STRING, default="response", doc="The answer's column."),
        Param(
            "idempotent",
            ParamType.BOOLEAN,
            default=False,
            doc="Whether a call may be made twice, as GET and HEAD may. Else it, and its action,"
            " is not tried again once a byte was sent.",
        ),
        *_CALLING,
    ),
    determinism=Determinism.EXTERNAL,
    idempotent=False,
    idempotent_with=(("method", "GET"), ("method", "HEAD"), ("idempotent", True)),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output", "http_status:int", "http_error:string"),
    work_unit="rows",
    capacity=16,
    base_memory_mib=256,
    doc="Sends a request for every row." + _RULES,
    examples=(
        'with: {url: "https://api.example.com/items/{{ id }}", parse: json, secret: api-key}',
        'with: {url: "https://api.example.com/score", method: POST, json: {text: "{{ text }}"},'
        " idempotent: true, onError: record}",
    ),
)

CHAT = EngineContract(
    name="http.chat",
    version=1,
    implementation=2,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    timeout_param="timeoutS",
    inputs=(_ROWS,),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The input's columns, the answer, `finish_reason`, `http_status` and `http_error`"
            " (null where there is none).",
        ),
    ),
    params=(
        Param(
            "endpoint",
            ParamType.STRING,
            required=True,
            doc="Where the API is, without `/chat/completions`: `https://api.example.com/v1`.",
        ),
        Param("model", ParamType.STRING, required=True, doc="The model's name there."),
        Param(
            "messages",
            ParamType.LIST,
            template="jinja",
            format="chat",
            doc="The chat: a list of {role, content}, contents are templates.",
        ),
        Param(
            "system",
            ParamType.STRING,
            template="jinja",
            doc="A system message put before the messages; a template.",
        ),
        Param("output", ParamType.STRING, default="completion", doc="The answer's column."),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The most tokens of one answer.",
        ),
        Param(
            "temperature",
            ParamType.NUMBER,
            minimum=0,
            maximum=10,
            doc="Sampling temperature; the endpoint's own default where it is not given.",
        ),
        Param("seed", ParamType.INTEGER, doc="Sent where it is given; few servers keep to it."),
        Param(
            "options",
            ParamType.OBJECT,
            default={},
            doc="Further members of the request (`top_p`, `stop`, `response_format`); null leaves"
            " one of ours out.",
        ),
        _HEADERS,
        *_CALLING,
        *CHAT_ROWS,
    ),
    minor=1,
    one_of=(("messages",),),
    determinism=Determinism.EXTERNAL,
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:string", "finish_reason:string", "http_status:int", "http_error:string"),
    work_unit="rows",
    capacity=16,
    base_memory_mib=256,
    doc="Asks a model behind an OpenAI-compatible endpoint for every row. A repeated call costs"
    " tokens and changes nothing, so calls are tried again." + _RULES,
    examples=(
        "with: {endpoint: https://api.example.com/v1, model: a-model, secret: api-key, messages:"
        ' [{role: user, content: "{{ question }}"}]}',
    ),
)

CONTRACTS = (REQUEST, CHAT)
