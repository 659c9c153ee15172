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
            doc="The text to learn, from its first token to its last: a template over the row's"
            " columns.",
        ),
        Param(
            "prompt",
            ParamType.STRING,
            template="jinja",
            doc="The text before the completion; a template. By default it is not learned.",
        ),
        Param(
            "completion",
            ParamType.STRING,
            template="jinja",
            doc="The text to learn after the prompt; a template.",
        ),
        Param(
            "messages",
            ParamType.LIST,
            template="jinja",
            format="chat",
            doc="A chat to learn: a list of {role, content}, where each content is a template. It"
            " is rendered with the model's own chat template.",
        ),
        Param(
            "completion_only_loss",
            ParamType.BOOLEAN,
            doc="Whether to learn only the completion (true) or the prompt too (false); null means"
            " true if there is a prompt.",
        ),
        Param(
            "assistant_only_loss",
            ParamType.BOOLEAN,
            default=False,
            doc="Learn only the assistant's messages of a chat.",
        ),
        Param(
            "packing",
            ParamType.BOOLEAN,
            default=False,
            doc="Pack several rows into one sequence of `max_length` tokens; rows do not attend to"
            " each other.",
        ),
        Param(
            "loss_type",
            ParamType.STRING,
            default="chunked_nll",
            choices=("chunked_nll", "nll", "dft"),
            doc="The loss: `nll` is the negative log-likelihood, `chunked_nll` the same computed in"
            " chunks, which needs less memory, and `dft` is dynamic fine-tuning.",
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
    doc="Supervised fine-tuning (TRL's SFTTrainer): the model learns to write the text of the rows,"
    " followed by its end token. Rows longer than `max_length` are truncated at their end; a row"
    " whose prompt leaves no room for its completion is dropped. `metrics` counts both.",
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
        doc="The chat that both answers reply to, instead of a prompt: a list of {role, content},"
        " where each content is a template. The answers become the assistant's messages in the"
        " model's own chat template.",
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
            doc="The text that both answers follow; a template. Without it only the answers are"
            " scored.",
        ),
        *_PAIR,
        Param(
            "center_rewards_coefficient",
            ParamType.NUMBER,
            minimum=0,
            doc="The weight of a loss that pulls the mean of all scores towards 0; null adds no"
            " such loss.",
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
    doc="Trains a reward model (TRL's RewardTrainer), which learns to give the better of two"
    " answers the higher score. The output `model` is a model for sequence classification with one"
    " label; the output `adapter` includes the scoring head. `metrics` has `accuracy`, the share of"
    " pairs scored in the right order, and `margin`, the mean difference. A row that is longer than"
    " `max_length`, or whose answers are equal, is dropped and counted. Dropout is disabled,"
    " including `lora_dropout`.",
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
            doc="The text that both answers follow; a template over the row's columns.",
        ),
        *_PAIR,
        Param(
            "beta",
            ParamType.NUMBER,
            default=0.1,
            minimum=0,
            doc="How strongly the model is kept close to the starting model; higher is closer.",
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
            doc="The loss; `sigmoid` is the one of the DPO paper.",
        ),
        Param(
            "label_smoothing",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            maximum=0.5,
            doc="For `robust`: the probability that a preference is wrong. For `exo_pair`, which"
            " needs it: the label smoothing.",
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
    " of two answers, while it is kept close to the starting model. `metrics` has"
    " `rewards_accuracies` and `rewards_margins`. An answer that goes beyond `max_length` is"
    " truncated at its end; a row whose prompt leaves no room for an answer, or whose answers are"
    " equal, is dropped. Both are counted. Without `use_peft`, a copy of the starting model is kept"
    " in memory as the reference. Dropout is disabled, including `lora_dropout`.",
    examples=(
        'with: {prompt: "Q: {{ question }}\\nA:", chosen: " {{ good }}", rejected: " {{ bad }}",'
        " use_peft: true, learning_rate: 5e-5}",
    ),
)

CONTRACTS = (SFT, REWARD, DPO)
