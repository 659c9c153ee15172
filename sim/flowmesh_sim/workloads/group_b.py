"""The paper's group B: group A and four post-training pipelines with RLHF and RLAIF.

Each trains on a slice of GSM8K and evaluates on 100 held-out rows. The graphs and sizes are our
interpretation (ASSUMED). Common stages (the same fine-tuning, the same reward model) are equal
actions.
"""

from flowmesh_core.graph.plan import StepPlan
from flowmesh_sim.workloads.group_a import GROUP_A, LARGE, MIDDLE, SMALL
from flowmesh_sim.workloads.workflow_shapes import TRAIN_ROWS, PlanBuilder, out, shape

EVAL_ROWS = 100


def _evaluate(
    m: PlanBuilder, base: str, adapter: StepPlan | None, model: StepPlan | None = None
) -> None:
    inputs = {
        "model": out(model, "model") if model else m.model(base),
        "rows": m.data("gsm8k", EVAL_ROWS, split="held-out"),
    }
    if adapter is not None:
        inputs["adapter"] = out(adapter, "adapter")
    answered = m.step("answer", "llm.generate", inputs, maxTokens=384, prompt="solve")
    m.step("grade", "eval.exact-match", {"rows": out(answered)}, prediction="answer", target="gold")


def _memory(m: PlanBuilder, base: str, per_param: str) -> int:
    """Returns the memory that a user who knows the model requests, in MiB."""
    t = m.hardware.facts.group("training")
    params = m.hardware.models[base].facts.params
    return int(getattr(t, per_param) * params / (1 << 20) + t.activation_mib) + 1024


@shape("b-sft")
def sft(m: PlanBuilder) -> None:
    """LoRA fine-tuning of the 8B model, and its evaluation."""
    rows = m.data("gsm8k", TRAIN_ROWS, split="train")
    tuned = m.step(
        "sft",
        "train.sft",
        {"model": m.model(LARGE), "rows": rows},
        use_peft=True,
        num_train_epochs=1.0,
        memory_mib=_memory(m, LARGE, "lora_bytes_per_param"),
    )
    _evaluate(m, LARGE, tuned)


@shape("b-full-sft")
def full_sft(m: PlanBuilder) -> None:
    """Full fine-tuning of the 1B model, and its evaluation."""
    rows = m.data("gsm8k", TRAIN_ROWS, split="train")
    tuned = m.step(
        "sft",
        "train.sft",
        {"model": m.model(SMALL), "rows": rows},
        num_train_epochs=1.0,
        memory_mib=_memory(m, SMALL, "full_bytes_per_param"),
    )
    _evaluate(m, SMALL, None, tuned)


@shape("b-dpo")
def dpo(m: PlanBuilder) -> None:
    """RLAIF: sample pairs, judge them, learn the preference, evaluate."""
    rows = m.data("gsm8k", TRAIN_ROWS // 2, split="train")
    pairs = m.step(
        "sample",
        "llm.generate",
        {"model": m.model(MIDDLE), "rows": rows},
        samples=2,
        maxTokens=256,
        prompt="solve",
    )
    judged = m.step(
        "judge",
        "llm.score",
        {"model": m.model(LARGE), "rows": out(pairs)},
        method="judge",
        maxTokens=64,
    )
    chosen = m.step("pair", "data.sql", {"judged": out(judged)}, query="pair")
    tuned = m.step(
        "dpo",
        "train.dpo",
        {"model": m.model(MIDDLE), "rows": out(chosen)},
        chosen="a",
        rejected="b",
        use_peft=True,
        num_train_epochs=1.0,
        memory_mib=_memory(m, MIDDLE, "lora_bytes_per_param"),
    )
    _evaluate(m, MIDDLE, tuned)


@shape("b-ppo")
def ppo(m: PlanBuilder) -> None:
    """RLHF: fine-tune, learn a reward, optimise the policy against it, evaluate."""
    rows = m.data("gsm8k", TRAIN_ROWS, split="train")
    tuned = m.step(
        "sft",
        "train.sft",
        {"model": m.model(SMALL), "rows": rows},
        num_train_epochs=1.0,
        memory_mib=_memory(m, SMALL, "full_bytes_per_param"),
    )
    pairs = m.data("gsm8k", TRAIN_ROWS, split="pairs")
    reward = m.step(
        "reward",
        "train.reward",
        {"model": m.model(SMALL), "rows": pairs},
        chosen="a",
        rejected="b",
        num_train_epochs=1.0,
        memory_mib=_memory(m, SMALL, "full_bytes_per_param"),
    )
    policy = m.step(
        "ppo",
        "train.ppo",
        {"model": out(tuned, "model"), "reward": out(reward, "model"), "rows": rows},
        num_train_epochs=1.0,
        memory_mib=_memory(m, SMALL, "ppo_bytes_per_param"),
    )
    _evaluate(m, SMALL, None, policy)


@shape("b-tight")
def tight(m: PlanBuilder) -> None:
    """A step with half of its memory: it runs out of memory and is placed again."""
    rows = m.data("gsm8k", TRAIN_ROWS, split="train")
    needed = _memory(m, SMALL, "full_bytes_per_param")
    inputs = {"model": m.model(SMALL), "rows": rows}
    m.step("sft", "train.sft", inputs, num_train_epochs=1.0, memory_mib=needed // 2)


GROUP_B = (*GROUP_A, "b-sft", "b-full-sft", "b-dpo", "b-ppo")
