"""Contracts of the engines that train a model on rows; what they share is in ``train_params``."""

from flowmesh_core.catalog.builtin.chat_rows import CHAT_ROWS, PAIR_ROWS
from flowmesh_core.catalog.builtin.train_params import (
    MODEL_INPUT,
    PEFT_PARAMS,
    ROUTER_LOSS,
    ROWS_INPUT,
    TOKENS,
    TRUNCATED,
    evaluated,
    logged,
    training_outputs,
    training_params,
)
from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Metric,
    Param,
    ParamType,
)
from flowmesh_core.catalog.timeouts import DAY_S

_LEARNED = (Metric("entropy"), Metric("mean_token_accuracy"), ROUTER_LOSS)
_SCORED = tuple(map(Metric, ("accuracy", "margin", "mean_reward", "min_reward", "max_reward")))
_PREFERRED = (
    *logged("rewards", "chosen", "rejected", "accuracies", "margins"),
    *logged("logps", "chosen", "rejected"),
    *logged("logits", "chosen", "rejected"),
)

SFT = EngineContract(
    name="train.sft",
    version=1,
    implementation=2,
    default_timeout_s=7 * DAY_S,
    max_timeout_s=7 * DAY_S,
    inputs=(MODEL_INPUT, ROWS_INPUT),
    outputs=training_outputs(TRUNCATED, TOKENS, *evaluated(*_LEARNED)),
    params=(
        Param(
            "text",
            ParamType.STRING,
            template="jinja",
            doc="What to learn: a template over the row's columns, learned from its first token"
            " to its last.",
        ),
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="What comes before the completion; a template. It is read, not learned.",
        ),
        Param(
            "completion",
            ParamType.STRING,
            template="jinja",
            doc="What to say after the prompt; a template.",
        ),
        Param(
            "messages",
            ParamType.LIST,
            template="jinja",
            format="chat",
            doc="A chat to learn: a list of {role, content}, contents are templates; written with"
            " the model's own chat template.",
        ),
        Param(
            "completion_only_loss",
            ParamType.BOOLEAN,
            doc="Learn the completion alone (true) or the prompt too (false); null is true where"
            " there is a prompt.",
        ),
        Param(
            "assistant_only_loss",
            ParamType.BOOLEAN,
            default=False,
            doc="Of a chat, learn the assistant's messages alone.",
        ),
        Param(
            "packing",
            ParamType.BOOLEAN,
            default=False,
            doc="Put several rows into one sequence of `max_length`; no row sees another.",
        ),
        Param(
            "loss_type",
            ParamType.STRING,
            default="chunked_nll",
            choices=("chunked_nll", "nll", "dft"),
            doc="The loss: the likelihood (in chunks, which needs less memory, or whole), or"
            " dynamic fine-tuning.",
        ),
        *training_params(learning_rate=2e-5),
        *PEFT_PARAMS,
        *CHAT_ROWS,
    ),
    minor=1,
    one_of=(("text", "completion", "messages"),),
    identity_fields=("dtype",),
    determinism=Determinism.SEEDED,
    work_unit="samples",
    needs_gpu_class="accelerator",
    base_memory_mib=3072,
    component_memory_factor=1.5,
    doc="Supervised fine-tuning (TRL's SFTTrainer): the model learns to write what the rows say,"
    " ended by its end token. Rows longer than `max_length` are cut at their end; one whose prompt"
    " leaves no room for its completion is dropped. Both are counted in `metrics`.",
    examples=(
        'with: {prompt: "Q: {{ question }}\\nA:", completion: " {{ answer }}", use_peft: true}',
        'with: {messages: [{role: user, content: "{{ question }}"},'
        ' {role: assistant, content: "{{ answer }}"}], learning_rate: 1e-5, num_train_epochs: 1}',
    ),
)

_PAIR = (
    Param(
        "messages",
        ParamType.LIST,
        template="jinja",
        format="chat",
        doc="The chat that both answers reply to, in place of a prompt: a list of {role, content},"
        " contents are templates; the answers become the assistant's, in the model's own chat"
        " template.",
    ),
    Param(
        "chosen",
        ParamType.STRING,
        template="jinja",
        doc="The better answer; a template over the row's columns.",
    ),
    Param(
        "rejected",
        ParamType.STRING,
        template="jinja",
        doc="The worse answer; a template.",
    ),
)

_ANSWERS = (("chosen", "chosenFrom"), ("rejected", "rejectedFrom"))

REWARD = EngineContract(
    name="train.reward",
    version=1,
    implementation=2,
    default_timeout_s=7 * DAY_S,
    max_timeout_s=7 * DAY_S,
    inputs=(MODEL_INPUT, ROWS_INPUT),
    outputs=training_outputs(TRUNCATED, TOKENS, *evaluated(*_SCORED)),
    params=(
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="What both answers follow; a template. Without it the answers are scored alone.",
        ),
        *_PAIR,
        Param(
            "center_rewards_coefficient",
            ParamType.NUMBER,
            minimum=0,
            doc="Draws the mean of all scores to 0 with this weight; null leaves it alone.",
        ),
        *training_params(learning_rate=1e-4),
        *PEFT_PARAMS,
        *PAIR_ROWS,
    ),
    minor=1,
    one_of=_ANSWERS,
    identity_fields=("dtype",),
    determinism=Determinism.SEEDED,
    work_unit="samples",
    needs_gpu_class="accelerator",
    base_memory_mib=3072,
    component_memory_factor=1.5,
    doc="A reward model (TRL's RewardTrainer): it learns to score the better of two answers higher."
    " `model` is a directory for sequence classification with one label; an `adapter` holds the"
    " scoring head too. `metrics` has `accuracy`, the share of pairs scored in the right order, and"
    " `margin`, the mean difference. A row longer than `max_length`, or with two equal answers, is"
    " dropped and counted. Dropout is off, `lora_dropout` too.",
    examples=(
        'with: {prompt: "{{ question }}", chosen: "{{ good }}", rejected: "{{ bad }}",'
        " test_size: 0.1}",
    ),
)

DPO = EngineContract(
    name="train.dpo",
    version=1,
    implementation=2,
    default_timeout_s=7 * DAY_S,
    max_timeout_s=7 * DAY_S,
    inputs=(MODEL_INPUT, ROWS_INPUT),
    outputs=training_outputs(TRUNCATED, TOKENS, *evaluated(*_LEARNED, *_PREFERRED)),
    params=(
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="What both answers follow; a template over the row's columns.",
        ),
        *_PAIR,
        Param(
            "beta",
            ParamType.NUMBER,
            default=0.1,
            minimum=0,
            doc="How strongly the model is held to what it was; more is stronger.",
        ),
        Param(
            "loss_type",
            ParamType.STRING,
            default="sigmoid",
            choices=(
                "sigmoid",
                "hinge",
                "ipo",
                "exo_pair",
                "nca_pair",
                "robust",
                "bco_pair",
                "sppo_hard",
                "aot",
                "aot_unpaired",
                "apo_zero",
                "apo_down",
                "discopop",
                "sft",
                "sigmoid_norm",
            ),
            doc="The loss; `sigmoid` is that of the DPO paper.",
        ),
        Param(
            "label_smoothing",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            maximum=0.5,
            doc="How often a preference may be wrong, for `robust`; the smoothing of `exo_pair`,"
            " which needs one.",
        ),
        *training_params(learning_rate=1e-6),
        *PEFT_PARAMS,
        *PAIR_ROWS,
    ),
    minor=1,
    one_of=(("prompt", "messages"), *_ANSWERS),
    identity_fields=("dtype",),
    determinism=Determinism.SEEDED,
    work_unit="samples",
    needs_gpu_class="accelerator",
    base_memory_mib=3072,
    component_memory_factor=2.5,
    doc="Direct preference optimization (TRL's DPOTrainer): the model learns to prefer the better"
    " of two answers, held to the model that it was. `metrics` has `rewards_accuracies` and"
    " `rewards_margins`. An answer that goes beyond `max_length` is cut at its end; a row whose"
    " prompt leaves no room for one, or whose answers are equal, is dropped; both are counted."
    " Without `use_peft` the model as it was is held beside the one that learns. Dropout is off,"
    " `lora_dropout` too.",
    examples=(
        'with: {prompt: "Q: {{ question }}\\nA:", chosen: " {{ good }}", rejected: " {{ bad }}",'
        " use_peft: true, learning_rate: 5e-5}",
    ),
)

CONTRACTS = (SFT, REWARD, DPO)
