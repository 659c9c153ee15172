"""Parameters of ``llm.generate`` beyond the first: sampling, the chat template, the engine.

Names and meanings are vLLM's (0.27.1), in our spelling; ``catalog.foreign_names`` answers theirs.
"""

from flowmesh_core.catalog.contract import Param, ParamType

TOKEN_MAX = 2**31 - 1
_WORDS = 1024

SAMPLING = (
    Param(
        "repetitionPenalty",
        ParamType.NUMBER,
        default=1.0,
        minimum=0.01,
        maximum=100,
        added=1,
        doc="Above 1, tokens that are in the prompt or the completion so far become less likely;"
        " below 1, more likely.",
    ),
    Param(
        "presencePenalty",
        ParamType.NUMBER,
        default=0.0,
        minimum=-2,
        maximum=2,
        added=1,
        doc="Subtracted from the logit of each token that is in the completion so far.",
    ),
    Param(
        "frequencyPenalty",
        ParamType.NUMBER,
        default=0.0,
        minimum=-2,
        maximum=2,
        added=1,
        doc="Subtracted from the logit of a token once for each time that it is in the completion"
        " so far.",
    ),
    Param(
        "minTokens",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        maximum=1_000_000,
        added=1,
        doc="The minimum number of tokens of a completion: no end token, stop token or stop string"
        " ends it sooner.",
    ),
    Param(
        "stopTokenIds",
        ParamType.LIST,
        default=[],
        format="token-ids",
        added=1,
        doc="Token ids that end a completion. The token is not part of the completion.",
    ),
    Param(
        "badWords",
        ParamType.LIST,
        default=[],
        format="words",
        added=1,
        doc="Texts that must not be in a completion: the last token of each is never chosen after"
        " the tokens before it. A text can still occur if the model writes it with other tokens"
        " than the tokenizer would.",
    ),
    Param(
        "includeStop",
        ParamType.BOOLEAN,
        default=False,
        added=1,
        doc="Whether to include the stop string or stop token that ended a completion.",
    ),
    Param(
        "ignoreEos",
        ParamType.BOOLEAN,
        default=False,
        added=1,
        doc="Whether to continue after the model's end token.",
    ),
    Param(
        "noRepeatNgram",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        maximum=_WORDS,
        added=1,
        implementations=("transformers",),
        doc="No sequence of this many tokens may occur twice in the prompt and completion; 0 sets"
        " no limit.",
    ),
)
CHAT_STYLE = (
    Param(
        "chatTemplate",
        ParamType.STRING,
        format="chat-template",
        added=1,
        needs=("messages",),
        doc="A chat template instead of the model's own. It is rendered with the same limits as"
        " other templates, and can use `messages`, `tools`, `add_generation_prompt`, the special"
        " tokens and `chatTemplateArgs`, but not the current time.",
    ),
    Param(
        "chatTemplateArgs",
        ParamType.OBJECT,
        default={},
        format="chat-template-args",
        added=1,
        needs=("messages",),
        doc="Variables for the chat template, such as `{enable_thinking: false}`.",
    ),
    Param(
        "reasoning",
        ParamType.STRING,
        added=1,
        doc="A column for the text between `<think>` and `</think>`; the completion is then the"
        " rest. Null if a completion has no such part.",
    ),
)
ENGINE = Param(
    "engine",
    ParamType.OBJECT,
    default={},
    batch_wide=True,
    format="engine-settings",
    added=1,
    doc="How to load the model; steps with different settings use separate engines. `quantization`:"
    " awq, gptq, fp8 or bitsandbytes (vLLM; by default the model's own). `kvCacheDtype`: fp8,"
    " fp8_e4m3, fp8_e5m2 or bfloat16 (vLLM). `maxModelLen`: the maximum number of tokens of a"
    " prompt with its completion, at most the model's context length.",
)
