"""The engine ``llm.openai``: each row is a request to OpenAI's API, and gets its response.

An instance answers chats and completions, or embeddings, by the parameter ``task``.

``run`` is called for many actions at once; one vLLM engine batches all their requests. Rows with
the same request share it. A response depends on the request alone: ids, times and seeds that vLLM
would draw follow from the request. Log-probabilities depend on the batch in their last digits.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import OpenAiRequest, check_request
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Metrics,
    Output,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.llm.answer_checkpoints import AnswerCheckpoints, Answers
from flowmesh_worker.engines.llm.backends import supported_variants
from flowmesh_worker.engines.llm.openai_serving import OpenAiAnswer, OpenAiCall, OpenAiServing
from flowmesh_worker.engines.llm.requests import sample_seed
from flowmesh_worker.engines.models.model_facts import ModelFacts, read_facts
from flowmesh_worker.engines.preload import HostPreload, preload_of_implementation
from flowmesh_worker.engines.row_gather import all_or_none

_CAPACITY = 64
_SERVER_ERROR = 500
_OK = 200
_ID_CHARS = 32
Response = dict[str, Any]


class Answering(Protocol):
    """A model that answers requests."""

    async def answer(self, call: OpenAiCall) -> OpenAiAnswer:
        """As :meth:`OpenAiServing.answer`."""
        ...


class Continuing(Protocol):
    """As :class:`flowmesh_worker.engines.llm.continuation.Continuation`."""

    engine: str

    def begin_at(self, call: OpenAiCall, tokens: Sequence[int]) -> None:
        """Has a request that is sent next begin at tokens."""
        ...

    def tokens(self, call: OpenAiCall) -> Sequence[int]:
        """Returns the tokens of an unfinished request so far."""
        ...


@dataclass(frozen=True, slots=True)
class _RowRequest:
    """A request of one or several rows.

    Attributes:
        key: its digest.
        canonical: the bytes that the key and the seed follow from.
        checked: None where it is refused; ``refusal`` is the response then.
    """

    key: str
    canonical: bytes
    checked: OpenAiRequest | None
    refusal: Response | None = None


class LlmOpenAi:
    """The engine ``llm.openai``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._backend: Any = None
        self._serving: Answering | None = None
        self._continuation: Continuing | None = None

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        return supported_variants("llm.openai", device_class, vllm="", only_vllm=True)

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
        """Returns what a standby host of this engine imports."""
        return preload_of_implementation(params, on_devices=on_devices)

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with vLLM."""
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        self._backend = await _start(facts, settings)
        self._continuation = _continuation(self._backend, settings)
        self._serving = await OpenAiServing.create(
            self._backend.engine, "model", getattr(self._backend, "grammars", None)
        )

    async def run(self, work: Work, progress: Progress) -> Result:
        """Answers all rows of one action."""
        if self._serving is None:
            raise RuntimeError("llm.openai was given work before it was loaded")
        source = work.dataset("rows")
        rows = await asyncio.to_thread(source.rows)
        requests = await asyncio.to_thread(_requests, rows, work.params)
        answers = await self._answers(work, progress).all(requests)
        output = str(work.params.get("output", "response"))
        responses = [answers[r.key] for r in requests]
        answered = [{**row, output: r} for row, r in zip(rows, responses, strict=True)]
        failed = sum(r["status_code"] != _OK for r in responses)
        metrics = Metrics({"completed": len(responses) - failed, "failed": failed})
        outputs: dict[str, Output] = {
            "rows": Rows(answered, _schema(source, output)),
            "metrics": metrics,
        }
        return Result(outputs, _usage(answers))

    def _answers(self, work: Work, progress: Progress) -> "_ActionAnswers":
        assert self._serving is not None
        engine = self._continuation.engine if self._continuation is not None else ""
        checkpoints = AnswerCheckpoints(work, engine)
        return _ActionAnswers(self._serving, self._continuation, work, progress, checkpoints)

    async def close(self) -> None:
        """Frees the model."""
        if self._backend is not None:
            await self._backend.close()
            self._backend = self._serving = None


class _ActionAnswers:
    """The requests of one action while they run."""

    def __init__(
        self,
        serving: Answering,
        continuation: Continuing | None,
        work: Work,
        progress: Progress,
        checkpoints: AnswerCheckpoints,
    ) -> None:
        self._serving = serving
        self._continuation = continuation
        self._work = work
        self._progress = progress
        self._checkpoints = checkpoints
        self._calls: dict[str, OpenAiCall] = {}

    async def all(self, requests: Sequence[_RowRequest]) -> dict[str, Response]:
        """Returns the responses by key, those of a checkpoint among them."""
        wanted = {r.key: r for r in requests}
        restored = await asyncio.to_thread(self._checkpoints.restored, wanted)
        answers = restored.responses
        answers |= {r.key: r.refusal for r in requests if r.refusal is not None}
        open_requests = [r for key, r in wanted.items() if key not in answers]
        watching = asyncio.create_task(self._checkpoints.watch(self._unfinished))
        try:
            await all_or_none(
                self._one(i, r, restored, len(wanted)) for i, r in enumerate(open_requests)
            )
        except AttemptError:
            await self._checkpoints.store()
            raise
        finally:
            watching.cancel()
            for error in await asyncio.gather(watching, return_exceptions=True):
                if isinstance(error, Exception):  # the answers are there all the same
                    sys.stdout.write(f"tokens of unfinished answers are not saved: {error!r}\n")
            self._checkpoints.close()
        return answers

    def _unfinished(self) -> dict[str, Sequence[int]]:
        if self._continuation is None:
            return {}
        return {key: self._continuation.tokens(call) for key, call in self._calls.items()}

    async def _one(self, number: int, request: _RowRequest, answers: Answers, total: int) -> None:
        call = self._call(number, request)
        if self._continuation is not None:
            self._continuation.begin_at(call, answers.tokens.pop(request.key, ()))
        self._calls[request.key] = call
        response = await self._answer(call, request)
        del self._calls[request.key]
        answers.responses[request.key] = response
        self._progress(len(answers.responses), total, "rows")
        await self._checkpoints.answered(request.key, response)

    def _call(self, number: int, request: _RowRequest) -> OpenAiCall:
        checked = request.checked
        if checked is None:
            raise ValueError("a request that is refused is not sent")
        return OpenAiCall(
            path=checked.path,
            body=checked.body,
            request_id=f"{self._work.attempt_id}/{number}",
            cache_salt=self._work.cache_salt,
            priority=self._work.priority,
            seed=sample_seed(0, request.canonical, 0),
        )

    async def _answer(self, call: OpenAiCall, request: _RowRequest) -> Response:
        answer = await self._serving.answer(call)
        if answer.status >= _SERVER_ERROR:
            message = f"vLLM failed on a request: {answer.body['error']['message']}"
            raise AttemptError(Failure(FailureKind.ENGINE, message))
        body = answer.body
        if answer.status == _OK and request.checked is not None:
            body = _repeatable(body, request.key[:_ID_CHARS], request.checked.model)
        return {"status_code": answer.status, "body": body}


async def _start(facts: ModelFacts, settings: HostSettings) -> Any:
    """Loads the model for the signature's task."""
    if settings.signature_params.get("task") == "embed":
        from flowmesh_worker.engines.llm.vllm_embedding import (  # noqa: PLC0415 - brings vLLM
            VllmEmbedding,
        )

        return await VllmEmbedding.start(facts, settings, "auto")
    from flowmesh_worker.engines.llm.vllm_backend import (  # noqa: PLC0415 - brings vLLM
        VllmBackend,
    )

    return await VllmBackend.start(facts, settings)


def _continuation(backend: Any, settings: HostSettings) -> Continuing | None:
    """Returns None for an engine that generates no tokens."""
    if not hasattr(backend, "grammars"):
        return None
    from flowmesh_worker.engines.llm.continuation import (  # noqa: PLC0415 - knows vLLM
        Continuation,
    )

    in_core = not settings.devices and int(settings.signature_params.get("tensorParallel", 1)) == 1
    return Continuation(backend.engine, settings, skips_draws=in_core)


def _requests(rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> list[_RowRequest]:
    """Returns the checked request of each row."""
    url, body = str(params.get("url", "url")), str(params.get("body", "body"))
    return [_request(row.get(url), row.get(body)) for row in rows]


def _request(url: Any, body: Any) -> _RowRequest:
    canonical = canonical_bytes([url, body])
    key = digest_bytes(canonical)
    try:
        checked = check_request(str(url), body, streams=False)
    except OpenAiError as e:
        return _RowRequest(key, canonical, None, {"status_code": e.status, "body": e.body()})
    return _RowRequest(key, canonical, checked)


def _repeatable(body: dict[str, Any], name: str, model: str) -> dict[str, Any]:
    """Returns a response in which nothing but the request decides."""
    prefix = str(body["id"]).partition("-")[0]
    for choice in body.get("choices", ()):
        calls = (choice.get("message") or {}).get("tool_calls") or ()
        for number, call in enumerate(calls):
            call["id"] = f"call_{name}_{choice['index']}_{number}"
    fixed = {"id": f"{prefix}-{name}", "created": 0, "model": model}
    if "choices" in body:
        fixed["system_fingerprint"] = None
    return {**body, **fixed}


def _usage(answers: Mapping[str, Response]) -> Usage:
    used = [a["body"].get("usage") or {} for a in answers.values()]
    tokens_in = sum(int(u.get("prompt_tokens") or 0) for u in used)
    tokens_out = sum(int(u.get("completion_tokens") or 0) for u in used)
    return Usage(units=tokens_in + tokens_out, tokens_in=tokens_in, tokens_out=tokens_out)


def _schema(source: DatasetInput, output: str) -> Schema:
    return Schema.of({**source.manifest.schema.types(), output: ColumnType.JSON})
