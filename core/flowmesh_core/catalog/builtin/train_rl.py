"""Contracts of the engines that train a model by reinforcement learning.

Parameters have the names and defaults of TRL's ``PPOConfig`` and ``GRPOConfig``; where a default
differs, its sentence says so. What all trainers share is in ``train_params``.
"""

from collections.abc import Iterable

from flowmesh_core.catalog.builtin.train_params import (
    MODEL_INPUT,
    PEFT_PARAMS,
    ROUTER_LOSS,
    TOKENS,
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
    Port,
    PortKind,
)
from flowmesh_core.catalog.timeouts import DAY_S
from flowmesh_core.catalog.verifiers import FORMAT as VERIFIERS
from flowmesh_core.catalog.verifiers import reference

_PROMPT_ROWS = Port("rows", PortKind.DATASET, doc="The rows from which prompts are made.")
_PROMPTS = (
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
        doc="A chat to answer, instead of a prompt: a list of {role, content}, where each content"
        " is a template.",
    ),
)
_TEMPERATURE_DOC = (
    "The sampling temperature of completions; the policy is trained at this temperature."
)

_PPO_METRICS = (
    *map(Metric, ("reward", "kl", "episode")),
    *logged("objective", "kl", "entropy", "non_score_reward", "rlhf_reward", "scores"),
    *logged("policy", "approxkl_avg", "clipfrac_avg", "entropy_avg"),
    *logged("loss", "policy_avg", "value_avg"),
    *logged("val", "clipfrac_avg", "ratio", "ratio_var", "num_eos_tokens"),
)
_GRPO_METRICS = (
    *map(Metric, ("reward", "reward_std", "frac_reward_zero_std", "entropy")),
    Metric("kl", with_param="beta"),
    *logged("rewards", *(f"{{reward_funcs}}_{part}" for part in ("mean", "std"))),
    *logged("rewards", *(f"reward_model_{part}" for part in ("mean", "std"))),
    *logged("completions", "mean_length", "min_length", "max_length", "clipped_ratio"),
    *logged("completions", *(f"{part}_terminated_length" for part in ("mean", "min", "max"))),
    *logged("clip_ratio", "low_mean", "low_min", "high_mean", "high_max", "region_mean"),
    Metric("cispo_clip_ratio", only_with=("loss_type", "cispo")),
    ROUTER_LOSS,
)


def _without(params: Iterable[Param], *names: str) -> tuple[Param, ...]:
    return tuple(p for p in params if p.name not in names)


PPO = EngineContract(
    name="train.ppo",
    version=1,
    implementation=2,
    default_timeout_s=7 * DAY_S,
    max_timeout_s=7 * DAY_S,
    inputs=(
        MODEL_INPUT,
        Port(
            "reward",
            PortKind.MODEL,
            component=True,
            doc="A reward model (`train.reward`) with the same vocabulary as `model`. The value"
            " model starts from it too, as a copy that is trained or, with `use_peft`, as an"
            " adapter on it.",
        ),
        _PROMPT_ROWS,
    ),
    outputs=training_outputs(*_PPO_METRICS),
    params=(
        *_PROMPTS,
        Param(
            "total_episodes",
            ParamType.INTEGER,
            minimum=1,
            doc="The number of completions to learn from, instead of `num_train_epochs`; rounded up"
            " to whole steps.",
        ),
        Param(
            "response_length",
            ParamType.INTEGER,
            default=53,
            minimum=1,
            maximum=65_536,
            doc="The maximum number of tokens of one completion.",
        ),
        Param(
            "stop_token",
            ParamType.STRING,
            default="eos",
            choices=("eos", "none"),
            doc="Whether the model's end token ends a completion. TRL's default is none.",
        ),
        Param(
            "temperature",
            ParamType.NUMBER,
            default=0.7,
            minimum=0.01,
            maximum=10,
            doc=_TEMPERATURE_DOC,
        ),
        Param(
            "missing_eos_penalty",
            ParamType.NUMBER,
            minimum=0,
            doc="Subtracted from the score of a completion that does not end by itself.",
        ),
        Param(
            "num_ppo_epochs",
            ParamType.INTEGER,
            default=4,
            minimum=1,
            doc="The number of passes over the completions of one step.",
        ),
        Param(
            "num_mini_batches",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            doc="The number of mini-batches into which the completions of a step are split; each"
            " gets one optimizer step.",
        ),
        Param(
            "local_rollout_forward_batch_size",
            ParamType.INTEGER,
            default=64,
            minimum=1,
            doc="The number of completions that are generated and scored in one batch.",
        ),
        Param(
            "kl_coef",
            ParamType.NUMBER,
            default=0.05,
            minimum=0,
            doc="The weight of the KL divergence from the starting model, as a penalty in the"
            " reward.",
        ),
        Param(
            "kl_estimator",
            ParamType.STRING,
            default="k1",
            choices=("k1", "k3"),
            doc="The estimator of the KL divergence; `k3` has less variance.",
        ),
        Param(
            "cliprange",
            ParamType.NUMBER,
            default=0.2,
            minimum=0,
            doc="The clip range of the policy's probability ratio.",
        ),
        Param(
            "vf_coef", ParamType.NUMBER, default=0.1, minimum=0, doc="The weight of the value loss."
        ),
        Param(
            "cliprange_value",
            ParamType.NUMBER,
            default=0.2,
            minimum=0,
            doc="The clip range of the value function.",
        ),
        Param(
            "gamma", ParamType.NUMBER, default=1.0, minimum=0, maximum=1, doc="The discount factor."
        ),
        Param(
            "lam",
            ParamType.NUMBER,
            default=0.95,
            minimum=0,
            maximum=1,
            doc="The lambda of generalized advantage estimation (GAE).",
        ),
        Param(
            "whiten_rewards",
            ParamType.BOOLEAN,
            default=False,
            doc="Scale the rewards of a step to unit variance; needs mini-batches of at least 8"
            " completions.",
        ),
        *_without(
            training_params(learning_rate=3e-6),
            "max_length",
            "max_grad_norm",
            "bf16",
            "test_size",
            "eval_steps",
            "per_device_eval_batch_size",
        ),
        *_without(PEFT_PARAMS, "lora_dropout"),
    ),
    one_of=(("prompt", "messages"),),
    identity_fields=("dtype",),
    determinism=Determinism.SEEDED,
    work_unit="samples",
    needs_gpu_class="accelerator",
    base_memory_mib=3072,
    component_memory_factor=3.5,
    doc="Proximal policy optimization (TRL's PPOTrainer): the model completes prompts, the reward"
    " model scores the completions, and completions that score better than the value model expected"
    " become more likely. A step uses `per_device_train_batch_size` times"
    " `gradient_accumulation_steps` prompts. Dropout is disabled. `metrics` has `reward`, `kl`,"
    " `objective_*`, `policy_*`, `loss_*` and `val_*` of the last step; `curve` has them by step.",
    examples=(
        'with: {prompt: "Q: {{ question }}\\nA:", total_episodes: 256, response_length: 32,'
        " missing_eos_penalty: 1.0, use_peft: true}",
    ),
)

GRPO = EngineContract(
    name="train.grpo",
    version=1,
    implementation=2,
    default_timeout_s=7 * DAY_S,
    max_timeout_s=7 * DAY_S,
    inputs=(
        MODEL_INPUT,
        Port(
            "reward",
            PortKind.MODEL,
            required=False,
            component=True,
            doc="A reward model (`train.reward`), whose score is added to `reward_funcs` as the"
            " last reward.",
        ),
        _PROMPT_ROWS,
    ),
    outputs=training_outputs(TOKENS, *evaluated(*_GRPO_METRICS)),
    params=(
        *_PROMPTS,
        Param(
            "reward_funcs",
            ParamType.LIST,
            default=[],
            format=VERIFIERS,
            doc="Checks by name, such as `{name: number-equals, target: answer}`. Each gives a"
            f" reward of 1 to a completion that passes. {reference()}",
        ),
        Param(
            "reward_weights",
            ParamType.LIST,
            doc="A weight for each of `reward_funcs`, then one for the reward model, if there is"
            " one; null means 1 for all.",
        ),
        Param(
            "num_generations",
            ParamType.INTEGER,
            default=8,
            minimum=2,
            maximum=1024,
            doc="The number of completions of one prompt, which are compared with each other. It"
            " must divide `per_device_train_batch_size` times `gradient_accumulation_steps`.",
        ),
        Param(
            "max_completion_length",
            ParamType.INTEGER,
            default=512,
            minimum=1,
            maximum=65_536,
            doc="The maximum number of tokens of one completion.",
        ),
        Param(
            "temperature",
            ParamType.NUMBER,
            default=1.0,
            minimum=0.01,
            maximum=10,
            doc=_TEMPERATURE_DOC,
        ),
        Param(
            "top_p",
            ParamType.NUMBER,
            default=1.0,
            minimum=0.001,
            maximum=1,
            doc="Sample only from the most probable tokens whose probabilities add up to this.",
        ),
        Param(
            "top_k",
            ParamType.INTEGER,
            default=0,
            minimum=0,
            doc="Sample only from this many of the most probable tokens; 0 is all.",
        ),
        Param(
            "repetition_penalty",
            ParamType.NUMBER,
            default=1.0,
            minimum=0.01,
            doc="Above 1, tokens that occurred before become less likely.",
        ),
        Param(
            "beta",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            doc="The weight of the KL divergence from the starting model, in the loss. At 0 it is"
            " not computed, and no copy of the starting model is kept.",
        ),
        Param(
            "num_iterations",
            ParamType.INTEGER,
            default=1,
            minimum=1,
            doc="The number of optimizer steps on the same completions.",
        ),
        Param("epsilon", ParamType.NUMBER, default=0.2, minimum=0, doc="The lower clip range."),
        Param(
            "epsilon_high",
            ParamType.NUMBER,
            minimum=0,
            doc="The upper clip range; null means the same as `epsilon`.",
        ),
        Param(
            "delta",
            ParamType.NUMBER,
            minimum=0,
            doc="An upper bound of the probability ratio where the advantage is negative; null sets"
            " none.",
        ),
        Param(
            "loss_type",
            ParamType.STRING,
            default="dapo",
            choices=("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo"),
            doc="The variant of the loss: most differ in how the losses of the tokens are"
            " aggregated.",
        ),
        Param(
            "importance_sampling_level",
            ParamType.STRING,
            default="token",
            choices=("token", "sequence"),
            doc="Whether a probability ratio is of one token or of the whole sequence; `sequence`"
            " with `loss_type: grpo` is GSPO.",
        ),
        Param(
            "scale_rewards",
            ParamType.STRING,
            default="group",
            choices=("group", "batch", "none"),
            doc="Whether advantages are scaled to unit variance over the completions of a prompt"
            " (`group`), over the batch, or not.",
        ),
        Param(
            "mask_truncated_completions",
            ParamType.BOOLEAN,
            default=False,
            doc="Exclude completions that did not end by themselves from the loss.",
        ),
        Param(
            "disable_dropout",
            ParamType.BOOLEAN,
            default=False,
            doc="Train without dropout, including that of the adapter.",
        ),
        *_without(training_params(learning_rate=1e-6), "max_length"),
        *PEFT_PARAMS,
    ),
    one_of=(("prompt", "messages"),),
    identity_fields=("dtype",),
    determinism=Determinism.SEEDED,
    work_unit="samples",
    needs_gpu_class="accelerator",
    base_memory_mib=3072,
    component_memory_factor=1.5,
    doc="Group-relative policy optimization (TRL's GRPOTrainer): the model completes each prompt"
    " several times, and completions with more reward than the mean of their group become more"
    " likely. Rewards come from checks by a program, from a reward model, or from both. Evaluation"
    " generates completions for the held-out rows. `metrics` has `reward`, `reward_std`,"
    " `rewards_*`, `completions_*`, `entropy` and, with `beta`, `kl` of the last step; `curve` has"
    " them by step.",
    examples=(
        'with: {messages: [{role: user, content: "{{ question }}"}], use_peft: true,'
        " reward_funcs: [{name: number-equals, target: answer}, {name: length-at-most, tokens: 32}]"
        ", reward_weights: [1.0, 0.2], num_generations: 4, max_completion_length: 32}",
        'with: {prompt: "{{ task }}", reward_funcs: [{name: json-valid, schema: {type: object}}]}',
    ),
)

CONTRACTS = (PPO, GRPO)
