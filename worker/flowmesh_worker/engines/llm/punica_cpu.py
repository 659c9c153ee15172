"""LoRA in vLLM's batches on a CPU, instead of vLLM's own reference operations.

Those (vLLM 0.27.1) apply the last slot's weights to a request without an adapter if another request
of its batch has one, and copy an adapter's matrices for every token. Here the rows of each slot are
multiplied together, and rows without an adapter do not change. ``use_on_cpu`` registers the class
before the engine's process is forked.
"""

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


class SlotWisePunica(PunicaWrapperCPU):  # type: ignore[misc]  # vLLM is not typed for mypy here
    """Applies each slot's matrices to its own rows only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows_of: list[tuple[int, torch.Tensor]] = []

    def update_metadata(self, mapping: Any, *args: Any, **kwargs: Any) -> None:
        """Records which rows of the next step belong to which slot."""
        super().update_metadata(mapping, *args, **kwargs)
        slots = self.token_lora_indices
        self._rows_of = [
            (slot, torch.nonzero(slots == slot).flatten())
            for slot in slots.unique().tolist()
            if slot >= 0
        ]

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_: Any,
    ) -> None:
        """Adds each adapter's product to its rows.

        Args:
            y: [rows, outputs], changed in place.
            x: [rows, inputs].
            lora_a_stacked: [slots, 1, rank, inputs] for each slice of the outputs.
            lora_b_stacked: [slots, 1, outputs of the slice, rank] for each slice.
            scale: factor of the product.
            output_slices: outputs of each slice.
        """
        for slot, rows in self._rows_of:
            given, start = x[rows].float(), 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                part = (given @ a[slot, 0].float().T * scale) @ b[slot, 0].float().T
                y[:, start : start + width].index_add_(0, rows, part.to(y.dtype))
                start += width


def use_on_cpu() -> None:
    """Makes vLLM use this class, in this process and in those forked from it."""
    from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415 - beside its one use

    name = f"{SlotWisePunica.__module__}.{SlotWisePunica.__qualname__}"
    CpuPlatform.get_punica_wrapper = classmethod(lambda _cls: name)
