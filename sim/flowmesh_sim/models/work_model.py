"""Models the work and the outputs of attempts, engine by engine.

Serving work is a number of decoding steps with a mean number of sequences: its tokens over its
longest answer, so that both the total and the tail are right. All other work is seconds.
"""

import random
from dataclasses import dataclass, replace
from math import exp
from typing import TYPE_CHECKING, Any

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.step_results import dataset_artifact, metrics_artifact
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.ports import Preload
from flowmesh_sim.models.content import SCHEMA, SimContents, SimRows, SimWeights, extended
from flowmesh_sim.models.devices import MIB, Device, HardwareCatalog, LanguageModel
from flowmesh_sim.models.library import library_of

if TYPE_CHECKING:
    from collections.abc import Callable

SERVING, TRAINING, HOST = "serving", "training", "host"
AGENT_TURNS = 3
SLEEPING_ENGINES = frozenset({"llm.generate", "llm.agent"})
"""Engines that can sleep, as those of ``flowmesh_worker`` can."""
SCORE_TOKENS = 2.0


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The work of an attempt.

    Attributes:
        kind: ``serving``, ``training`` or ``host``.
        steps: decoding steps, or seconds alone on the device.
        sequences: in the batch at once; 0 if it does not serve.
        context: mean tokens of a sequence.
        prefill_s: seconds of prefill added to each step.
        units: in the contract's unit.
        peak_mib: device memory that it actually needs.
        checkpoint_every: the share of the work between two checkpoints; 0 for none.
        grown_tokens: tokens that are added to each row.
        beside: the share of its time that each other attempt in its instance adds.
        ends_on_request: whether its engine ends it early when its worker leaves.
    """

    kind: str
    steps: float
    sequences: float = 0.0
    context: float = 0.0
    prefill_s: float = 0.0
    units: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    peak_mib: int = 0
    checkpoint_every: float = 0.0
    grown_tokens: float = 0.0
    beside: float = 0.0
    ends_on_request: bool = False


class WorkModel:
    """Computes the work and the outputs of attempts for every engine of the catalog."""

    def __init__(self, hardware: HardwareCatalog, contents: SimContents, catalog: Catalog) -> None:
        self._hardware = hardware
        self.contents = contents
        self._catalog = catalog
        facts = hardware.facts
        self._training = facts.group("training")
        self._serving = facts.group("serving")
        self._host = facts.group("host_work")
        self._retrieval = facts.group("retrieval")
        self._standby = facts.group("standby")
        self.sleep = facts.group("sleep")
        self._by_engine: dict[str, Callable[[Assignment, Device], WorkItem]] = {
            "llm.generate": self._generate,
            "llm.agent": self._generate,
            "llm.score": self._generate,
            "llm.embed": self._embed,
            "train.sft": self._train,
            "train.reward": self._train,
            "train.dpo": self._train,
            "train.ppo": self._reinforce,
            "train.grpo": self._reinforce,
        }

    def of(self, a: Assignment, device: Device) -> WorkItem:
        """Returns the work of an attempt on a device."""
        return self._by_engine.get(a.engine, self._on_host)(a, device)

    def model_of(self, a: Assignment) -> LanguageModel | None:
        """Returns the model that its host loads; None for an engine without one."""
        weights = self._weights(a, "model")
        return None if weights is None else self._hardware.models[weights.model]

    def needs_mib(self, a: Assignment) -> float:
        """Returns the memory without which the host cannot load."""
        if a.engine.startswith("train."):
            return 0.0  # training runs out of memory later, not while loading
        model = self.model_of(a)
        if model is None or not a.engine.startswith("llm."):
            return 0.0
        return model.weights_mib + float(self._serving.kv_reserve_mib)

    def weights_mib(self, a: Assignment) -> float:
        """Returns the memory of the weights, known from their manifest before a fetch."""
        model = self.model_of(a)
        return model.weights_mib if model is not None and a.engine.startswith("llm.") else 0.0

    @property
    def refused_s(self) -> float:
        """Seconds until a host reports that the model does not fit: only its process starts."""
        return float(self._hardware.facts.group("start").host_process_s)

    @property
    def process_s(self) -> float:
        """Seconds until the process of an engine with a model has imported its libraries."""
        return float(self._hardware.facts.group("start").process_s)

    def preload(self, engine: str) -> Preload | None:
        """What a standby host for an engine imports; None where that is next to nothing."""
        library = library_of(engine)
        if library is None:
            return None
        return Preload(library, int(getattr(self._standby, f"{library}_mib")))

    def start_s(self, a: Assignment, device: Device) -> tuple[float, float]:
        """Returns the seconds until a host's process runs, and from then until it has loaded."""
        size = sum(a.inputs[p].artifact.size_bytes for p in a.components if p in a.inputs)
        start = self._hardware.facts.group("start")
        process_s = self.process_s if size else float(start.host_process_s)
        return process_s, self.load_s(a, size, device) - process_s

    def asleep_mib(self, a: Assignment, device: Device) -> int:
        """Returns the host memory of an engine that is asleep; 0 for one that cannot sleep.

        Engines on a CPU are counted as such, though those on vLLM can free their caches.
        """
        if a.engine not in SLEEPING_ENGINES or not device.accelerator:
            return 0
        size = self.weights_bytes(a)
        return int(size * self.sleep.host_share / MIB) + 1 if size else 0

    def weights_bytes(self, a: Assignment) -> int:
        """Returns the bytes of the model that its host loads; 0 for an engine without one."""
        weights = self._weights(a, "model")
        return 0 if weights is None else weights.size_bytes

    def sleep_s(self, size: int, *, again: bool) -> float:
        """Returns the seconds until an engine sleeps.

        Args:
            size: bytes of its weights.
            again: whether it has slept before, so that its host memory is pinned.
        """
        s = self.sleep
        return float(s.message_s + size / (s.wake_bytes_per_s if again else s.sleep_bytes_per_s))

    def wake_s(self, size: int) -> float:
        """Returns the seconds until an engine with weights of this size is awake."""
        return float(self.sleep.message_s + size / self.sleep.wake_bytes_per_s)

    def load_s(self, a: Assignment, size: int, device: Device) -> float:
        """Returns the seconds to load this many bytes, including the process's start."""
        return device.load_s(size, warm=True, captures=library_of(a.engine) == "vllm")

    def outputs(
        self, a: Assignment, duty: WorkItem
    ) -> tuple[dict[str, Artifact], dict[Digest, bytes]]:
        """Returns artifacts by port and small blobs; they depend only on the action."""
        contract = self._catalog.pinned(a.engine, a.contract, a.implementation)
        assert contract is not None, f"the catalog has no {a.engine}"
        artifacts: dict[str, Artifact] = {}
        inline: dict[Digest, bytes] = {}
        for port in output_ports(contract, a.params):
            artifact = self._output(a, duty, port.name, port.kind, contract.row_output)
            artifacts[port.name] = artifact
            if artifact.value is not None:
                inline[artifact.blob] = canonical_bytes(artifact.value)
            elif port.kind is PortKind.BLOB:
                inline[artifact.blob] = _pin(a)
        return artifacts, inline

    # -- engines ---------------------------------------------------------------------------------

    def _generate(self, a: Assignment, device: Device) -> WorkItem:
        model = self.model_of(a)
        chunks = self._rows(a)
        if model is None or not chunks:
            return self._on_host(a, device)
        rng = random.Random(a.action_id)
        samples = int(a.params.get("samples") or 1)
        short = a.engine == "llm.score" and a.params.get("method") != "judge"
        turns = AGENT_TURNS if a.engine == "llm.agent" else 1
        most = float(a.params.get("maxTokens") or 256)
        lengths = [
            SCORE_TOKENS
            if short
            else min(most, max(1.0, exp(rng.gauss(r.answer_mu, r.answer_sigma))))
            for r in chunks
            for _ in range(r.count * samples)
        ]
        rows = sum(r.count for r in chunks)
        prompt = sum(r.count * r.prompt for r in chunks) / rows + self._serving.template_tokens
        out, longest = sum(lengths), max(lengths)
        prefill_s = device.prefill_s(model, rows * prompt, prompt)
        return WorkItem(
            SERVING,
            steps=longest * turns,
            sequences=out / longest,
            context=prompt + out / len(lengths) / 2,
            prefill_s=prefill_s / longest,
            units=int(rows * prompt + out * turns),
            tokens_in=int(rows * prompt),
            tokens_out=int(out * turns),
            peak_mib=int(model.weights_mib + self._serving.kv_reserve_mib),
            grown_tokens=out / len(lengths) * turns,
        )

    def _embed(self, a: Assignment, device: Device) -> WorkItem:
        duty = self._generate(a, device)
        if duty.kind != SERVING:
            return duty
        return replace(duty, steps=1.0, prefill_s=duty.prefill_s * duty.steps, tokens_out=0)

    def _train(self, a: Assignment, device: Device) -> WorkItem:
        model, chunks = self.model_of(a), self._rows(a)
        if model is None or not chunks:
            return self._on_host(a, device)
        t, peft = self._training, bool(a.params.get("use_peft"))
        sides = 1 if a.engine == "train.sft" else 2
        cost = t.lora_flops_per_param if peft else t.full_flops_per_param
        cost += t.forward_flops_per_param if a.engine == "train.dpo" else 0.0
        rows, tokens = self._read(chunks, float(a.params.get("max_length") or 1024))
        epochs, steps = _epochs(a, rows)
        seconds = device.train_s(model, tokens * epochs * sides, cost, steps)
        return self._trained(a, model, peft, seconds, rows * epochs, tokens * epochs * sides)

    def _reinforce(self, a: Assignment, device: Device) -> WorkItem:
        model, chunks = self.model_of(a), self._rows(a)
        if model is None or not chunks:
            return self._on_host(a, device)
        t, peft = self._training, bool(a.params.get("use_peft"))
        grpo = a.engine == "train.grpo"
        length = float(a.params.get("max_completion_length" if grpo else "response_length") or 53)
        rows, tokens = self._read(chunks, 1024.0)
        epochs, steps = _epochs(a, rows)
        episodes = float(a.params.get("total_episodes") or rows * epochs)
        episodes *= float(a.params.get("num_generations") or 8) if grpo else 1.0
        batch = float(a.params.get("per_device_train_batch_size") or 8)
        context = tokens / rows + length
        step_s = device.decode_step_s(model, batch, context) / t.generate_share
        generate_s = episodes / batch * length * step_s
        passes = 1 if grpo else 4
        forward_s = device.train_s(model, episodes * context, passes * t.forward_flops_per_param, 0)
        cost = t.lora_flops_per_param if peft else t.full_flops_per_param
        rounds = float(a.params.get("num_iterations") or 1) if grpo else t.ppo_epochs * 2
        learn_s = device.train_s(model, episodes * context * rounds, cost, steps)
        seconds = generate_s + forward_s + learn_s
        return self._trained(a, model, peft, seconds, int(episodes), episodes * context)

    def _trained(
        self,
        a: Assignment,
        model: LanguageModel,
        peft: bool,
        seconds: float,
        units: float,
        tokens: float,
    ) -> WorkItem:
        t = self._training
        ppo = a.engine == "train.ppo"
        per_param = (
            (t.ppo_lora_bytes_per_param if ppo else t.lora_bytes_per_param)
            if peft
            else (t.ppo_bytes_per_param if ppo else t.full_bytes_per_param)
        )
        saved = t.adapter_mib * MIB if peft else model.weights_bytes
        seconds += t.setup_s + saved / t.save_bytes_per_s
        every = float(a.params.get("save_steps") or 0)
        steps = _epochs(a, int(units))[1]
        return WorkItem(
            TRAINING,
            steps=seconds,
            units=int(units),
            tokens_in=int(tokens),
            peak_mib=int(per_param * model.facts.params / MIB + t.activation_mib),
            checkpoint_every=every / steps if every and steps > every else 0.0,
            ends_on_request=True,
        )

    def _on_host(self, a: Assignment, device: Device) -> WorkItem:
        h, p = self._host, a.params
        rows = sum(r.count for r in self._rows(a))
        match a.engine:
            case "test.noop":
                return WorkItem(HOST, h.noop_s)
            case "test.sleep":
                return WorkItem(HOST, max(h.noop_s, float(p.get("seconds") or 0.0)))
            case "test.steps":
                steps, every = float(p["steps"]), float(p.get("checkpointEvery") or 0)
                seconds = max(h.noop_s, steps * float(p.get("stepSeconds") or 0.0))
                share = every / steps if every and every < steps else 0.0
                return WorkItem(
                    HOST, seconds, units=int(steps), checkpoint_every=share, ends_on_request=True
                )
            case "source.resolve" | "dataset.import" | "model.import":
                return WorkItem(HOST, h.import_s)
            case "retrieve.topk":
                seconds = h.action_s + rows * h.row_s
                return WorkItem(
                    HOST, seconds, units=rows, grown_tokens=self._retrieval.context_tokens
                )
        return WorkItem(HOST, h.action_s + rows * h.row_s, units=max(1, rows))

    # -- inputs and outputs ----------------------------------------------------------------------

    def _weights(self, a: Assignment, port: str) -> SimWeights | None:
        given = a.inputs.get(port)
        return None if given is None else self.contents.weights_of(given.artifact)

    def _rows(self, a: Assignment) -> list[SimRows]:
        main = a.inputs.get("rows")
        given = [main] if main is not None else [a.inputs[p] for p in sorted(a.inputs)]
        return [r for g in given for r in self.contents.rows_of(g.artifact)]

    @staticmethod
    def _read(chunks: list[SimRows], longest: float) -> tuple[int, float]:
        """Returns rows and tokens of a data set, with long rows cut."""
        return (
            sum(r.count for r in chunks),
            sum(r.count * min(longest, r.prompt) for r in chunks),
        )

    def _output(
        self, a: Assignment, duty: WorkItem, port: str, kind: PortKind, row_output: str
    ) -> Artifact:
        name = f"{a.action_id}/{port}"
        match kind:
            case PortKind.METRICS:
                return metrics_artifact({"count": duty.units, "value": int(a.action_id[:8], 16)})
            case PortKind.DATASET:
                grows = duty.grown_tokens if port in (row_output, "rows") else 0.0
                samples = int(a.params.get("samples") or 1)
                chunks = [
                    self.contents.chunk(f"{name}/{n}", extended(r, grows, samples))
                    for n, r in enumerate(self._rows(a))
                ]
                return dataset_artifact(Manifest(SCHEMA, tuple(chunks)))
            case PortKind.MODEL | PortKind.ADAPTER:
                given = self._weights(a, "model")
                base = given.model if given else self._hardware.facts.names("models")[-1]
                size = self._hardware.models[base].weights_bytes
                if kind is PortKind.ADAPTER:
                    size = int(self._training.adapter_mib * MIB)
                return self.contents.model(base, size, name, kind)
        return content_artifact(kind, digest_bytes(_pin(a)), len(_pin(a)))


def _pin(a: Assignment) -> bytes:
    return f"pin {a.action_id}".encode()


def _epochs(a: Assignment, rows: int) -> tuple[float, float]:
    """Returns the epochs over the rows, and the steps of the optimizer."""
    p: dict[str, Any] = a.params
    batch = float(p.get("per_device_train_batch_size") or 8)
    batch *= float(p.get("gradient_accumulation_steps") or 1)
    epochs = float(p.get("num_train_epochs") or 1.0)
    steps = epochs * rows / batch
    limit = float(p.get("max_steps") or -1)
    if limit > 0:
        return limit * batch / rows, limit
    return epochs, steps
