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
        doc="Above 1: words of the prompt and of the completion so far become less likely; below 1"
        " more.",
    ),
    Param(
        "presencePenalty",
        ParamType.NUMBER,
        default=0.0,
        minimum=-2,
        maximum=2,
        added=1,
        doc="Subtracted from the logit of each token that the completion has so far.",
    ),
    Param(
        "frequencyPenalty",
        ParamType.NUMBER,
        default=0.0,
        minimum=-2,
        maximum=2,
        added=1,
        doc="Subtracted from a token's logit for each time that the completion has the token.",
    ),
    Param(
        "minTokens",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        maximum=1_000_000,
        added=1,
        doc="No end token, stop token or stop string ends a completion of fewer tokens.",
    ),
    Param(
        "stopTokenIds",
        ParamType.LIST,
        default=[],
        format="token-ids",
        added=1,
        doc="Numbers of tokens that end a completion and are not part of it.",
    ),
    Param(
        "badWords",
        ParamType.LIST,
        default=[],
        format="words",
        added=1,
        doc="Texts that a completion does not have: the last token of each is never taken after"
        " those before it. Drawn as other tokens than the tokenizer's, a text may still occur.",
    ),
    Param(
        "includeStop",
        ParamType.BOOLEAN,
        default=False,
        added=1,
        doc="Whether the stop string or stop token that ended a completion is part of it.",
    ),
    Param(
        "ignoreEos",
        ParamType.BOOLEAN,
        default=False,
        added=1,
        doc="Whether to go on after the model's end token.",
    ),
    Param(
        "noRepeatNgram",
        ParamType.INTEGER,
        default=0,
        minimum=0,
        maximum=_WORDS,
        added=1,
        implementations=("transformers",),
        doc="No sequence of so many tokens occurs twice in prompt and completion; 0 is no such"
        " limit.",
    ),
)
CHAT_STYLE = (
    Param(
        "chatTemplate",
        ParamType.STRING,
        format="chat-template",
        added=1,
        needs=("messages",),
        doc="A chat template in place of the model's own. It is rendered under the limits of other"
        " templates, and sees `messages`, `tools`, `add_generation_prompt`, the special tokens and"
        " `chatTemplateArgs`, but no clock.",
    ),
    Param(
        "chatTemplateArgs",
        ParamType.OBJECT,
        default={},
        format="chat-template-args",
        added=1,
        needs=("messages",),
        doc="Values that the chat template sees by name, such as `{enable_thinking: false}`.",
    ),
    Param(
        "reasoning",
        ParamType.STRING,
        added=1,
        doc="A column for what stands between `<think>` and `</think>`; the completion is then the"
        " rest. Null where a completion has no such part.",
    ),
)
ENGINE = Param(
    "engine",
    ParamType.OBJECT,
    default={},
    batch_wide=True,
    format="engine-settings",
    added=1,
    doc="How the model is loaded; steps with other settings have an engine of their own."
    " `quantization`: awq, gptq, fp8 or bitsandbytes (vLLM; without it the model's own)."
    " `kvCacheDtype`: fp8, fp8_e4m3, fp8_e5m2 or bfloat16 (vLLM). `maxModelLen`: the most tokens of"
    " prompt and completion, no more than the model has.",
)
