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

_ROWS = Port("rows", PortKind.DATASET, doc="The rows to process, one at a time.")
_HEADERS = Param(
    "headers",
    ParamType.OBJECT,
    template="jinja",
    doc="Headers by name; the values are templates. They are part of the action's identity and are"
    " stored with it, so use `secret` for values that must not be.",
)
_CALLING = (
    Param(
        "secret",
        ParamType.STRING,
        format="secret",
        doc="The name of a secret that authorizes the call. Its value is sent to the worker only"
        " for this attempt, and appears in no action id, log, error or output.",
    ),
    Param(
        "secretHeader",
        ParamType.STRING,
        default="Authorization: Bearer",
        doc="The header that carries the secret, and a prefix of its value, if any, such as"
        " `X-Api-Key` or `Authorization: Basic`.",
    ),
    Param(
        "timeoutS",
        ParamType.NUMBER,
        default=60.0,
        minimum=0.1,
        maximum=3600,
        doc="The time limit of one try, in seconds.",
    ),
    Param(
        "maxConcurrency",
        ParamType.INTEGER,
        default=8,
        minimum=1,
        maximum=64,
        doc="The maximum number of concurrent calls from one engine process to one server. Several"
        " workers together can make more.",
    ),
    Param(
        "retries",
        ParamType.INTEGER,
        default=3,
        minimum=0,
        maximum=10,
        doc="The number of further tries after a broken connection, a timeout, or the status 408,"
        " 425, 429, 500, 502, 503 or 504. The wait before a try is what `Retry-After` asks for (at"
        " most 60 s), otherwise 0.5 s, doubled each time. A call that must not be repeated is tried"
        " again only if no byte of it was sent.",
    ),
    Param(
        "maxBytes",
        ParamType.INTEGER,
        default=1 << 20,
        minimum=1,
        maximum=1 << 26,
        doc="The maximum size of one answer, in bytes.",
    ),
    Param(
        "onError",
        ParamType.STRING,
        default="fail",
        choices=("fail", "record"),
        doc="What to do if a call ends without a status from 200 to 299, or with an answer that"
        " cannot be read: `fail` the action, or `record` the error in `http_error` and continue. An"
        " action is a chunk of rows: when one call fails it, other calls of the chunk may already"
        " have been made.",
    ),
)
_RULES = (
    " Addresses are checked at every connection, also after a redirect: private, loopback and"
    " link-local addresses are refused unless an administrator allows them with"
    " `FLOWMESH_HTTP_ALLOW`. Unencrypted `http:` is refused except to addresses that are allowed in"
    " that way. Every call carries an `Idempotency-Key` that is the same in every try. Results are"
    " reused only within their run."
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
            doc="The input's columns, the answer, `http_status` and `http_error` (null if there was"
            " no error).",
        ),
    ),
    params=(
        Param(
            "url",
            ParamType.STRING,
            required=True,
            template="jinja",
            doc="The URL: a template over the row's columns; write `{{ x | urlencode }}` for"
            " values. With a `secret`, the host must be literal, not part of the template.",
        ),
        Param(
            "method",
            ParamType.STRING,
            default="GET",
            choices=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
            doc="The HTTP method. Redirects are followed only for GET and HEAD.",
        ),
        _HEADERS,
        Param(
            "body", ParamType.STRING, template="jinja", doc="The body of the request: a template."
        ),
        Param(
            "json",
            ParamType.ANY,
            template="jinja",
            doc="The body as JSON, instead of `body`: a value whose strings are templates. They"
            " stay strings; for other types use `body` with `{{ x | tojson }}`.",
        ),
        Param(
            "parse",
            ParamType.STRING,
            default="text",
            choices=("text", "json"),
            doc="Whether the answer is stored as text, or parsed as JSON.",
        ),
        Param("output", ParamType.STRING, default="response", doc="The column for the answer."),
        Param(
            "idempotent",
            ParamType.BOOLEAN,
            default=False,
            doc="Whether a call may be repeated, as GET and HEAD may. If not, the call and its"
            " action are not tried again once a byte was sent.",
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
            " (null if there was no error).",
        ),
    ),
    params=(
        Param(
            "endpoint",
            ParamType.STRING,
            required=True,
            doc="The base URL of the API, without `/chat/completions`, such as"
            " `https://api.example.com/v1`.",
        ),
        Param(
            "model", ParamType.STRING, required=True, doc="The name of the model at the endpoint."
        ),
        Param(
            "messages",
            ParamType.LIST,
            template="jinja",
            format="chat",
            doc="The chat: a list of {role, content}, where each content is a template.",
        ),
        Param(
            "system",
            ParamType.STRING,
            template="jinja",
            doc="A system message that is put before the messages; a template.",
        ),
        Param("output", ParamType.STRING, default="completion", doc="The column for the answer."),
        Param(
            "maxTokens",
            ParamType.INTEGER,
            default=256,
            minimum=1,
            maximum=1_000_000,
            doc="The maximum number of tokens of one answer.",
        ),
        Param(
            "temperature",
            ParamType.NUMBER,
            minimum=0,
            maximum=10,
            doc="The sampling temperature; the endpoint's own default if not given.",
        ),
        Param(
            "seed",
            ParamType.INTEGER,
            doc="The seed to send with the request, if given; few servers honor it.",
        ),
        Param(
            "options",
            ParamType.OBJECT,
            default={},
            doc="Further members of the request, such as `top_p`, `stop` or `response_format`. A"
            " null removes a member that this engine would send.",
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
    doc="Calls a model at an OpenAI-compatible endpoint for every row. A repeated call costs tokens"
    " but changes nothing, so failed calls are tried again." + _RULES,
    examples=(
        "with: {endpoint: https://api.example.com/v1, model: a-model, secret: api-key, messages:"
        ' [{role: user, content: "{{ question }}"}]}',
    ),
)

CONTRACTS = (REQUEST, CHAT)
