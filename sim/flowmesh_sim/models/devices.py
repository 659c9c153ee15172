"""Devices and models: the duration and the power of an engine's step.

Decoding follows a serial roofline (bytes over bandwidth or operations over their rate, whichever is
larger, plus a part linear in the sequences of the batch); prefill and training are operations over
the share of the peak that engines reach. ``kernel/constants.yaml`` has the sources.
"""

from dataclasses import dataclass
from functools import cached_property
from math import floor, log2
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
        """The bytes that are downloaded and loaded."""
        return int(2 * float(self.facts.params))

    @cached_property
    def weights_mib(self) -> float:
        """The weights in MiB."""
        return self.weights_bytes / MIB

    def forward_flops(self, context: float) -> float:
        """Returns the operations of one token at a context of this many tokens."""
        f = self.facts
        return float(2 * f.matmul_params + 4 * f.layers * f.attention_width * context)


@dataclass(frozen=True)
class Device:
    """A device class, with the constants of the engines on it."""

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
        """Whether it is a GPU or another accelerator."""
        return self.name != "cpu"

    @property
    def device_class(self) -> str:
        """The device class in the shipped core's cost model."""
        return "cpu" if self.name == "cpu" else f"nvidia-{self.name}"

    @property
    def price_nanousd_h(self) -> int:
        """The price of an hour, in nano-dollars."""
        return round(float(self.facts.price_usd_h) * NANO)

    @property
    def sequences_max(self) -> float:
        """Sequences that an engine decodes side by side; more wait."""
        most = self.serving.sequences_max if self.accelerator else self.serving.sequences_max_cpu
        return float(most)

    def decode_step_s(self, model: LanguageModel, sequences: float, context: float) -> float:
        """Returns the duration of one decoding step of a batch.

        Args:
            model: the model.
            sequences: in the batch.
            context: mean tokens of a sequence so far.
        """
        f, m = self.facts, model.facts
        read = m.read_gb * GB + sequences * context * m.kv_bytes
        memory_s = read / (f.decode_share * f.bandwidth_gb_s * GB)
        flops = _padded(sequences) * 2 * m.matmul_params
        compute_s = flops / (f.prefill_share * f.peak_tflops * 1e12)
        fixed_s = self.serving.step_s + self.serving.step_s_per_sequence * sequences
        return float(max(self.serving.step_floor_s, max(memory_s, compute_s) + fixed_s))

    def prefill_s(self, model: LanguageModel, tokens: float, mean_prompt: float) -> float:
        """Returns the prefill time of prompts with ``tokens`` in total and this mean length."""
        flops = tokens * model.forward_flops(mean_prompt / 2)
        return float(flops / (self.facts.prefill_share * self.facts.peak_tflops * 1e12))

    def train_s(
        self, model: LanguageModel, tokens: float, flops_per_param: float, steps: float
    ) -> float:
        """Returns the time to train on these tokens in these steps, including launch overhead."""
        rate = self.facts.train_share * self.training.unpacked_share * self.facts.peak_tflops * 1e12
        return float(
            max(
                tokens * flops_per_param * model.facts.params / rate,
                steps * model.facts.train_floor_s,
            )
        )

    def kv_tokens(self, model: LanguageModel, reserved_mib: int) -> float:
        """Returns the tokens of an engine instance's key-value cache with this reservation."""
        free_mib = reserved_mib - model.weights_mib - self.serving.kv_reserve_mib
        return float(max(0.0, free_mib * MIB / model.facts.kv_bytes))

    def load_s(self, weights_bytes: float, *, warm: bool, captures: bool) -> float:
        """Returns the start time of an engine, including its process.

        Args:
            weights_bytes: of its components.
            warm: whether they are in the page cache.
            captures: whether it compiles and captures graphs, as vLLM does.
        """
        s = self.start
        if not weights_bytes:
            return float(s.host_process_s)
        rate = s.load_bytes_per_s if warm else s.cold_bytes_per_s
        capture_s = s.capture_s if captures else 0.0
        return float(s.process_s + capture_s + weights_bytes / rate)

    def serving_w(self, sequences: float) -> float:
        """Returns the power while serving a batch, in watts."""
        p, fixed = self.power, self.facts.decode_power
        share = fixed or min(
            p.serving_most, p.serving_base + p.serving_per_log2 * log2(max(1.0, sequences))
        )
        return float(share * self.facts.tdp_w)

    def training_w(self) -> float:
        """Returns the power while training, in watts."""
        return float(self.power.training * self.facts.tdp_w)

    def loading_w(self) -> float:
        """Returns the power while weights are loaded and an engine starts, in watts."""
        return float(self.facts.context_w + self.power.loading_w)


def _padded(sequences: float) -> float:
    """Returns the size of the batch that is computed: the next for which graphs are captured.

    Those are the powers of two and, between them, halfway (ADR 98).
    """
    power = 2.0 ** floor(log2(max(1.0, sequences)))
    return next(size for size in (power, 1.5 * power, 2.0 * power) if size >= sequences)


class HardwareCatalog:
    """All devices and models of the constants."""

    def __init__(self, facts: Constants) -> None:
        self.facts = facts
        groups = {g: facts.group(g) for g in ("serving", "training", "power", "start")}
        self.devices = {
            n: Device(n, facts.one("devices", n), **groups) for n in facts.names("devices")
        }
        self.models = {n: LanguageModel(n, facts.one("models", n)) for n in facts.names("models")}
