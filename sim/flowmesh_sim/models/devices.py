"""Devices and models by their figures: what a step of an engine takes, and what it draws.

Decoding is the serial roofline (bytes read over bandwidth or operations over their rate, whichever
is larger, and a part linear in the sequences of the batch); prefill and training are operations
over the share of the peak that engines reach. ``kernel/constants.yaml`` gives sources.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import Any

from flowmesh_sim.kernel.constants import Constants

MIB = 1 << 20
GIB_MIB = 1024
GB = 1e9
NANO = 1_000_000_000


@dataclass(frozen=True)
class LanguageModel:
    """A language model in bfloat16."""

    name: str
    facts: Any

    @cached_property
    def weights_bytes(self) -> int:
        """What is downloaded and loaded."""
        return int(2 * float(self.facts.params))

    @cached_property
    def weights_mib(self) -> float:
        """The same in MiB."""
        return self.weights_bytes / MIB

    def forward_flops(self, context: float) -> float:
        """Operations of one token at a context of so many tokens."""
        f = self.facts
        return float(2 * f.matmul_params + 4 * f.layers * f.attention_width * context)


@dataclass(frozen=True)
class Device:
    """A device of one class, with the constants of the engines on it."""

    name: str
    facts: Any
    serving: Any
    training: Any
    power: Any
    start: Any

    @property
    def memory_mib(self) -> int:
        """Usable memory."""
        return int(float(self.facts.memory_gib) * GIB_MIB)

    @property
    def accelerator(self) -> bool:
        """Whether engines that need a device run on it as one."""
        return self.name != "cpu"

    @property
    def device_class(self) -> str:
        """What the cost model of the shipped core knows it as."""
        return "cpu" if self.name == "cpu" else f"nvidia-{self.name}"

    @property
    def price_nanousd_h(self) -> int:
        """Price of an hour."""
        return round(float(self.facts.price_usd_h) * NANO)

    def decode_step_s(self, model: LanguageModel, sequences: float, context: float) -> float:
        """One decoding step of a batch.

        Args:
            model: the model.
            sequences: in the batch.
            context: mean tokens that each has behind it.
        """
        f, m = self.facts, model.facts
        read = m.read_gb * GB + sequences * context * m.kv_bytes
        memory_s = read / (f.decode_share * f.bandwidth_gb_s * GB)
        compute_s = sequences * 2 * m.matmul_params / (f.prefill_share * f.peak_tflops * 1e12)
        fixed_s = self.serving.step_s + self.serving.step_s_per_sequence * sequences
        return float(max(self.serving.step_floor_s, max(memory_s, compute_s) + fixed_s))

    def prefill_s(self, model: LanguageModel, tokens: float, mean_prompt: float) -> float:
        """Reading prompts of so many tokens together, each of the mean length."""
        flops = tokens * model.forward_flops(mean_prompt / 2)
        return float(flops / (self.facts.prefill_share * self.facts.peak_tflops * 1e12))

    def train_s(
        self, model: LanguageModel, tokens: float, flops_per_param: float, steps: float
    ) -> float:
        """Training on so many tokens in so many steps, launches of small steps included."""
        rate = self.facts.train_share * self.training.unpacked_share * self.facts.peak_tflops * 1e12
        return float(
            max(
                tokens * flops_per_param * model.facts.params / rate,
                steps * model.facts.train_floor_s,
            )
        )

    def kv_tokens(self, model: LanguageModel, reserved_mib: int) -> float:
        """Tokens that the cache of a lane with this reservation holds."""
        free_mib = reserved_mib - model.weights_mib - self.serving.kv_reserve_mib
        return float(max(0.0, free_mib * MIB / model.facts.kv_bytes))

    def load_s(self, weights_bytes: float, *, warm: bool, captures: bool) -> float:
        """An engine's start with so many bytes of components, its process included.

        Args:
            weights_bytes: what it loads.
            warm: whether that is in the page cache.
            captures: whether it compiles and captures graphs, as those that serve by vLLM do.
        """
        s = self.start
        if not weights_bytes:
            return float(s.host_process_s)
        rate = s.load_bytes_per_s if warm else s.cold_bytes_per_s
        capture_s = s.capture_s if captures else 0.0
        return float(s.process_s + capture_s + weights_bytes / rate)

    def serving_w(self, sequences: float) -> float:
        """Draw while serving a batch of so many sequences."""
        p, fixed = self.power, self.facts.decode_power
        share = fixed or min(
            p.serving_most, p.serving_base + p.serving_per_log2 * log2(max(1.0, sequences))
        )
        return float(share * self.facts.tdp_w)

    def training_w(self) -> float:
        """Draw while training."""
        return float(self.power.training * self.facts.tdp_w)

    def loading_w(self) -> float:
        """Draw while weights are loaded and an engine starts."""
        return float(self.facts.context_w + self.power.loading_w)


class HardwareCatalog:
    """All devices and models of the facts."""

    def __init__(self, facts: Constants) -> None:
        """Takes the constants."""
        self.facts = facts
        groups = {g: facts.group(g) for g in ("serving", "training", "power", "start")}
        self.devices = {
            n: Device(n, facts.one("devices", n), **groups) for n in facts.names("devices")
        }
        self.models = {n: LanguageModel(n, facts.one("models", n)) for n in facts.names("models")}
