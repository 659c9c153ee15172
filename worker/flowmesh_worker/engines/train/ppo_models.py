"""Loads the models of a PPO training, which share weights where possible.

With ``use_peft`` the reference is the policy without its adapter, and the value model is the reward
model with its own adapter and head: two copies of weights instead of four.

Imported only by hosts that train: torch and PEFT come with it.
"""

from dataclasses import dataclass
from typing import Any

from peft import inject_adapter_in_model

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.base_model import BaseModel
from flowmesh_worker.engines.train.lora import lora_config

_HEAD = "score"
_OWN = ("lora_", "modules_to_save")
"""Parts of the names of weights that PEFT creates: LoRA's, and the copy of the head."""


@dataclass(frozen=True, slots=True)
class PpoModels:
    """The models that TRL's trainer needs.

    Attributes:
        policy: trained; the trainer adds the adapter if there is one.
        reference: the original policy; None if the adapter can be disabled instead.
        value: trained.
        reward: never changes.
    """

    policy: Any
    reference: Any
    value: Any
    reward: Any


def ppo_models(session: Any, judge: BaseModel) -> PpoModels:
    """Loads the models of an action.

    Args:
        session: the action's.
        judge: the reward model.

    Raises:
        AttemptError: bad input; TRL's PPO cannot use the reward model's architecture.
    """
    reward = judge.frozen(seed=session.seed)
    if not hasattr(reward, _HEAD):
        raise bad_input(
            f"input 'reward' is a {type(reward).__name__}, and PPO needs one whose head is called"
            f" {_HEAD!r}",
            "train the reward model on the same base model as the policy",
        )
    adapted = bool(session.params["use_peft"])
    value = judge.frozen(seed=session.seed) if adapted else judge.fresh(seed=session.seed)
    policy = session.model()
    if adapted:
        value = _with_own_adapter(value, session)
    if session.params["gradient_checkpointing"]:
        for model in (policy, value):
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
    return PpoModels(policy, session.reference(), value, reward)


def _with_own_adapter(value: Any, session: Any) -> Any:
    # In place: TRL looks for the layers below the head by the model's own attribute.
    value = inject_adapter_in_model(lora_config(session.params, reward=True), value)
    for name, weight in value.named_parameters():
        weight.requires_grad_(any(part in name for part in _OWN))
    return value
