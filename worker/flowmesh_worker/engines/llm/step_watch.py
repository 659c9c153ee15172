"""Measures each step of a vLLM engine: its size as vLLM's scheduler says, its time by the core.

The engine core stamps the end of each step, by a clock that the host shares with it; a step began
when the one before it ended, or when the idle engine got a request. vLLM's own times of steps are
not used: where the core runs the model itself, they are taken after it has run. Knows the classes
of vLLM 0.27.
"""

import time
from typing import Any

from flowmesh_worker.engines.llm.sequence_places import SequencePlaces


def count_in_core() -> None:
    """Has engine cores that are started from now on send the sizes of their steps.

    The statistics of the host's part of vLLM, which are most of their cost, stay off.
    """
    from vllm.v1.engine.core_client import EngineCoreClient  # noqa: PLC0415 - brings vLLM

    make = EngineCoreClient.make_async_mp_client

    def make_counting(*given: Any, **named: Any) -> Any:
        return make(*given, **{**named, "log_stats": True})

    if not hasattr(EngineCoreClient, "_counts_steps"):
        EngineCoreClient._counts_steps = True
        EngineCoreClient.make_async_mp_client = staticmethod(make_counting)


class StepWatch:
    """The steps of one engine, from its start on."""

    def __init__(self, engine: Any, places: SequencePlaces) -> None:
        """Passes on what the core sends, and looks at it.

        Args:
            engine: an ``AsyncLLM`` that has answered nothing yet.
            places: get the steps.
        """
        self._processor = engine.output_processor
        self._places = places
        self._ended_s = 0.0
        self._get_output = engine.engine_core.get_output_async
        self._add_request = engine.engine_core.add_request_async
        engine.engine_core.get_output_async = self._output
        engine.engine_core.add_request_async = self._add

    async def _add(self, request: Any) -> None:
        if len(self._processor.request_states) == 1:  # it was idle; this request is known by now
            self._ended_s = time.monotonic()
        await self._add_request(request)

    async def _output(self) -> Any:
        outputs = await self._get_output()
        stats = outputs.scheduler_stats
        if stats is not None and stats.iteration_details is not None:
            self._count(stats.iteration_details, outputs.timestamp)
        if self._places.prompts:
            self._note_first_tokens(outputs.outputs)
        return outputs

    def _count(self, step: Any, ended_s: float) -> None:
        sequences = step.num_generation_requests
        # A sequence that was preempted computes its prompt and its tokens again.
        recomputed = step.num_generation_tokens - sequences
        seconds, self._ended_s = ended_s - self._ended_s, ended_s
        self._places.observe(sequences, step.num_ctx_tokens + recomputed, seconds)

    def _note_first_tokens(self, outputs: Any) -> None:
        for output in outputs:
            state = self._processor.request_states.get(output.request_id)
            if state is not None and output.new_token_ids:
                self._places.first_token(state.external_req_id)
