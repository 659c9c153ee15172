"""The table of the prior: rates of device classes before anything was measured on them.

``prior`` reads it. To add a device, add a row: its datasheet numbers, and the share of each that
serving engines reach. Observation corrects every number, so a wrong one only affects the first few
actions. An unknown device gets ``UNKNOWN_GPU``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Rates that a device sustains in practice.

    Attributes:
        read_bytes_per_s: rate of reading device memory while decoding.
        prefill_flops_per_s: multiplications and additions in prefill.
        decode_flops_per_s: the same in batched decoding, for the work of each sequence of a batch.
        step_s: fixed time of one decoding step.
        step_s_per_sequence: time that each sequence adds to a decoding step.
        load_bytes_per_s: rate of loading weights from disk (page cache warm) to the device.
        process_s: time for an engine process with components to start, before it loads them.
        capture_s: additional time of engines on vLLM, for compilation and graph capture.
        wake_bytes_per_s: rate of copying the weights of an engine that is asleep from host memory
            to the device; infinite if they never left it.
        host_scale: speed of host-side work (rows, bytes) relative to the reference CPU.
    """

    read_bytes_per_s: float
    prefill_flops_per_s: float
    decode_flops_per_s: float
    step_s: float
    step_s_per_sequence: float
    load_bytes_per_s: float
    process_s: float
    capture_s: float
    wake_bytes_per_s: float
    host_scale: float = 1.0


def _gpu(bandwidth_gb_s: float, efficiency: float, tflops: float, use: float) -> DeviceRates:
    """Returns a GPU's rates: datasheet bandwidth and dense bfloat16 rate, times the shares reached.

    The fixed 0.9 ms a step and 0.055 ms a sequence fit six published points of Llama-3.1-8B on an
    H100 (batch 8 to 128) within 2.4%, and five of Mistral-7B on an RTX 4090.
    """
    return DeviceRates(
        read_bytes_per_s=bandwidth_gb_s * 1e9 * efficiency,
        prefill_flops_per_s=tflops * 1e12 * use,
        decode_flops_per_s=tflops * 1e12 * use,
        step_s=0.9e-3,
        step_s_per_sequence=0.055e-3,
        load_bytes_per_s=3e9,  # 8B in bfloat16: 2.7 to 3.6 s cached, 5 to 13 s from a local disk
        process_s=12.0,
        capture_s=14.0,  # with a warm compile cache; 20 s where vLLM captures all its 86 graphs
        wake_bytes_per_s=1e10,  # 8B on an A100: 2.2 s (vLLM pull request 48337); half on PCIe 5
    )


CPU = DeviceRates(
    # SmolLM2-135M (538 MB in float32) under vLLM on two cores: 19 tokens/s alone, 141 at 64
    # requests, so a step takes 46 ms and 6.4 ms more for each sequence in it. Prompts of 64 to
    # 1,000 tokens take 1.0 to 1.2 ms a token.
    read_bytes_per_s=1.17e10,
    prefill_flops_per_s=4.9e11,
    decode_flops_per_s=8.4e10,
    step_s=0.5e-3,
    step_s_per_sequence=0.05e-3,
    load_bytes_per_s=2e8,
    process_s=6.0,  # llm.embed 4.5 s and train.sft 5.4 s alone (docs/benchmarks.md)
    capture_s=16.0,  # vLLM was ready after 13.5 s alone, after 45 to 57 s on a busy machine
    wake_bytes_per_s=float("inf"),
)

UNKNOWN_GPU = _gpu(864, 0.75, 362, 0.40)
"""A mid-range inference card, for device classes that are not in the table."""

DEVICES: dict[str, DeviceRates] = {
    "cpu": CPU,
    # class: datasheet GB/s, share reached in decoding, dense bfloat16 TFLOP/s, share in prefill
    "b200": _gpu(8000, 0.75, 2250, 0.55),  # vendor peak; shares assumed
    "h200": _gpu(4800, 0.78, 989, 0.60),  # the H100's compute with HBM3e
    "h100-nvl": _gpu(3938, 0.78, 835, 0.55),  # the 400 W cap lowers the clock in prefill
    "h100": _gpu(3350, 0.78, 989, 0.60),  # fitted: published vLLM points, error up to 2.4%
    "a100": _gpu(2039, 0.76, 312, 0.63),  # Vidur's profiles, and 72 to 77% of bandwidth at batch 1
    "l40s": _gpu(864, 0.80, 362, 0.45),  # decoding assumed; prefill agrees with its training rate
    "a10g": _gpu(600, 0.76, 70, 0.55),  # datasheet; shares of the A40
    "l4": _gpu(300, 0.80, 121, 0.45),  # datasheet; shares of the L40S
    "4090": _gpu(1008, 0.84, 165.2, 0.60),  # fitted: Mistral-7B under vLLM, -2.6 to +0.4%
    "a6000": _gpu(768, 0.76, 155, 0.55),  # datasheet; shares of the A40
    "t4": _gpu(320, 0.70, 65, 0.40),  # datasheet; float16
}

_BY_LENGTH = sorted(DEVICES, key=len, reverse=True)


def rates_of(device_class: str) -> DeviceRates:
    """Returns the rates of a device class such as ``cpu`` or ``NVIDIA-L40S-48GB``.

    The longest name in the table that is part of the class is used, so that ``nvidia-l40s`` does
    not match ``l4``, and ``h100-nvl`` does not match ``h100``.
    """
    name = device_class.lower()
    for known in _BY_LENGTH:
        if known in name:
            return DEVICES[known]
    return UNKNOWN_GPU


CONNECTION_BYTES_PER_S = 87.5e6
"""Rate of one connection to the store: Amazon's guidelines say 85 to 90 MB/s per request to S3."""
FETCH_CONNECTIONS = 8
"""Connections that read a large blob after its first piece (``flowmesh_store.ordered_pieces``)."""
FETCH_PIECE_BYTES = 8 << 20
"""Size of a piece; one connection reads a whole piece."""

UNIT_S: dict[str, float] = {
    "rows": 2e-4,  # a row in DuckDB or a short Python function, including reading and writing it
    "samples": 5e-2,
    "bytes": 1e-8,
    "actions": 5e-2,
    "tokens": 1e-3,
}
"""Seconds per unit of work on the reference CPU, for work without a roofline: initial guesses."""
HOST_START_S = 0.7
"""Seconds until an engine process without components takes work."""
WAKE_S = 0.1
"""Fixed seconds of a wake: messages to the engine's processes, and mapping the memory."""
ACTION_S = 0.03
"""Fixed seconds of an action: reading its inputs, writing its outputs."""
TRAINER_S = 7.0
"""Fixed seconds of a training step: trainer, optimizer, evaluation and saving. SmolLM2-135M with
LoRA on two cores took 11.5 s for 80 samples of 15 tokens, of which 4 s are operations."""
