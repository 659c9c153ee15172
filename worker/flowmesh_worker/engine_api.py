"""The plugin API: the class that an engine implements, and the values it gets and returns.

An engine runs in an *engine host*, a process of its own. The agent has fetched every input to local
files before ``run`` is called, hashes and uploads the outputs afterwards, and turns exceptions into
failures, so an engine needs to know nothing about the fabric.

A plugin has two entry points: group ``flowmesh.contracts`` names a callable that returns its
``EngineContract`` objects (light to import), group ``flowmesh.engines`` names the engine class
under the contract's name.
"""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from flowmesh_core.dataset.manifest import ChunkRef, Manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import AttemptError, Failure, FailureKind, FlowMeshError
from flowmesh_core.protocol.serving import (
    CallEnded,
    ComponentCall,
    ComponentProfile,
    TokenTargets,
)
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.secret_values import SecretValues

_Content = TypeVar("_Content")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The resources and parameters of one engine instance.

    Attributes:
        devices: device indices it owns; empty on a CPU.
        memory_mib: memory it may use (device memory, or host memory on a CPU).
        threads: CPU threads it may use.
        signature_params: the batch-wide parameters and identity fields of this instance
            (``dtype``, ``batchInvariant``, ``implementation``, ``tensorParallel`` ...).
        scratch: an empty directory that is removed with the host.
        mixed: the mixable ports that this instance's actions use (``adapter``); each action
            brings its own artifact there.
        sleeps: whether the engine may be put asleep; see ``Sleeps``.
    """

    devices: tuple[int, ...]
    memory_mib: int
    threads: int
    signature_params: Mapping[str, Any]
    scratch: Path
    mixed: frozenset[str] = frozenset()
    sleeps: bool = False


@dataclass(frozen=True, slots=True)
class DatasetInput:
    """A dataset (or one chunk of one).

    Attributes:
        manifest: its schema and its chunks.
        files: the Parquet file of every chunk in order: a local path, or its bytes if it was
            small enough to come with the assignment.
        verified: the numbers of chunks whose rows were compared with their identity; reading the
            others compares them and adds them.
    """

    manifest: Manifest
    files: tuple[Path | bytes, ...]
    verified: set[int] = field(default_factory=set, compare=False)

    def rows(self) -> list[dict[str, Any]]:
        """All rows in order, as Python values.

        Raises:
            IdentityMismatchError: a chunk has other rows than its dataset says. An engine lets it
                pass: the step that produced the dataset then runs again.
        """
        from flowmesh_store.datasets import (  # noqa: PLC0415 - pyarrow is heavy
            read_rows,
            read_verified_rows,
        )

        return [row for rows in self._chunks(read_rows, read_verified_rows) for row in rows]

    def table(self) -> Any:
        """All rows in order, as one ``pyarrow.Table``; json columns are canonical strings.

        Raises:
            IdentityMismatchError: as :meth:`rows`.
        """
        import pyarrow as pa  # noqa: PLC0415 - pyarrow is heavy

        from flowmesh_store.datasets import read_table, read_verified_table  # noqa: PLC0415
        from flowmesh_store.datasets.parquet import arrow_schema  # noqa: PLC0415

        schema = self.manifest.schema
        tables = list(self._chunks(read_table, read_verified_table))
        return pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()

    def _chunks(
        self,
        read: Callable[[bytes, Schema], _Content],
        read_verified: Callable[[bytes, Schema, ChunkRef], _Content],
    ) -> Iterator[_Content]:
        schema = self.manifest.schema
        for number, (chunk, file) in enumerate(zip(self.manifest.chunks, self.files, strict=True)):
            data = file if isinstance(file, bytes) else file.read_bytes()
            if number in self.verified:
                yield read(data, schema)
            else:
                content = read_verified(data, schema, chunk)
                self.verified.add(number)
                yield content


@dataclass(frozen=True, slots=True)
class TreeInput:
    """A model or adapter: a local directory."""

    digest: str
    path: Path


@dataclass(frozen=True, slots=True)
class BlobInput:
    """A blob or metrics: a local file, or its bytes if small."""

    digest: str
    content: Path | bytes

    def read(self) -> bytes:
        """Returns the bytes."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


Input = DatasetInput | TreeInput | BlobInput


@dataclass(frozen=True, slots=True)
class Rows:
    """A dataset output. The host writes it as Parquet, cut into chunks or as one chunk.

    Attributes:
        rows: objects, or a ``pyarrow.Table``.
        schema: the columns' types; None to infer them from the rows.
    """

    rows: Sequence[Mapping[str, Any]] | Any
    schema: Schema | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A model or adapter output: a directory below the action's ``out_dir``."""

    path: Path


@dataclass(frozen=True, slots=True)
class Metrics:
    """A metrics output: JSON numbers, strings and lists by name."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob output: bytes, or a file below ``out_dir``."""

    content: bytes | Path


Output = Rows | Tree | Metrics | Blob


class CheckpointSink(Protocol):
    """Stores a checkpoint in the background; may be called from any thread."""

    def __call__(self, path: Path, done: float) -> None:
        """Moves a directory away and returns at once; ``path`` does not exist afterwards.

        The directory is stored in the background. If an older one still waits to be stored, the new
        one replaces it. A failure to store it does not end the attempt.

        Args:
            path: a directory below ``out_dir`` or the host's ``scratch``, complete and closed.
            done: the work done, in the unit and on the scale of ``progress``.

        Raises:
            ValueError: the path is elsewhere, or not a directory.
        """
        ...


def _discard(path: Path, done: float) -> None:
    """Removes the checkpoint: the default without a host, as in an engine's own tests."""
    shutil.rmtree(path)


def _leave(path: Path, done: float) -> None:
    """Leaves the journal: the default without a host."""


class StoppedAtCheckpointError(AttemptError):
    """Raised by an engine that stops because ``Work.stopping`` is set.

    The action is queued again and another worker resumes it from the newest checkpoint. The
    attempt does not count as a failure and is not billed.
    """

    def __init__(self, message: str = "stopped between two steps, as its worker leaves") -> None:
        """Creates a failure of kind ``drained`` with this message."""
        super().__init__(Failure(FailureKind.DRAINED, message))


@dataclass(frozen=True, slots=True)
class Work:
    """One action for an engine.

    An engine whose actions run for minutes writes checkpoints: it calls ``checkpoint`` now and
    then, begins at ``resume`` if it is set, and checks ``stopping`` between two steps. Resumed or
    not, its result is the same, as far as its contract promises (``exact``, ``seeded``). If it
    cannot use a checkpoint (another version wrote it, say), it ignores it and starts over.

    Attributes:
        action_id: the action's identity; engines may log it.
        attempt_id: the attempt's name.
        params: typed parameters, decoded from the canonical form.
        fields: the identity fields.
        inputs: local inputs by port (for a ``*`` port, by the names the user chose).
        out_dir: an empty directory for outputs, created when it is first read.
        cache_salt: separates prefix caches of tenants that do not share.
        priority: higher first, if the engine can order its queue.
        secrets: values sent for this one attempt; never log them. Before each request that
            carries one, also after a redirect, ``secrets.require([name], url)`` checks that its
            owner allows the host.
        resume: the newest checkpoint of this action, from any attempt on any worker: a private
            copy, which the engine may change; None to begin at the start.
        checkpoint: stores a directory as the newest checkpoint.
        journal: names a directory that the engine goes on appending to. The worker takes it as the
            newest checkpoint if the host ends before the attempt, so that what was written until
            then is not lost. Nothing is stored before; ``done`` is as with ``checkpoint``.
        stopping: set when the attempt should end soon: its worker leaves, or it was cancelled.
            An engine with checkpoints then writes one, unless ``cancelled`` is set, passes it to
            ``checkpoint`` and raises ``StoppedAtCheckpointError``; half of the worker's grace
            period remains for storing it. An engine that ignores it runs until the period ends.
        cancelled: set, before ``stopping``, when the attempt was cancelled.
        tenant: whose user code the action runs; empty where it runs none.
    """

    action_id: str
    attempt_id: str
    params: Mapping[str, Any]
    fields: Mapping[str, Any]
    inputs: Mapping[str, Input]
    out_dir: Path
    cache_salt: str = ""
    priority: int = 0
    secrets: SecretValues = field(default_factory=SecretValues)
    resume: TreeInput | None = None
    checkpoint: CheckpointSink = _discard
    journal: Callable[[Path, float], None] = _leave
    stopping: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    tenant: str = ""

    def dataset(self, port: str) -> DatasetInput:
        """Returns the dataset at a port.

        Raises:
            KeyError: the action has no input at this port.
            TypeError: the input is not a dataset.
        """
        value = self.inputs[port]
        if not isinstance(value, DatasetInput):
            raise TypeError(f"port {port!r} carries {type(value).__name__}, not a dataset")
        return value


@dataclass(slots=True)
class Usage:
    """The resources that an attempt used; an engine fills in what it knows.

    Attributes:
        units: work done in the contract's ``work_unit`` (tokens in and out, rows, ...).
        tokens_in: prompt tokens; 0 if the engine has none.
        tokens_out: generated tokens.
        joules: measured energy; 0 lets the agent estimate (marked as an estimate).
        peak_memory_mib: peak of device memory, or of host memory on a CPU; 0 lets the host measure.
    """

    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    joules: float = 0.0
    peak_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The return value of ``run``: one output for each port of the contract, and the usage."""

    outputs: Mapping[str, Output]
    usage: Usage = field(default_factory=Usage)


class Progress(Protocol):
    """Reports an action's progress; cheap, and callable from any thread."""

    def __call__(self, done: float, total: float, unit: str) -> None:
        """Reports ``done`` of ``total`` in ``unit`` (``rows``, ``tokens``, ``steps``)."""
        ...


class Engine(Protocol):
    """An engine instance: created, loaded once, then given work until it is closed.

    ``run`` is called concurrently, up to ``capacity`` at once, on one asyncio loop; blocking work
    belongs in ``asyncio.to_thread``. Cancelling the task of ``run`` must stop the work. An engine
    raises ``flowmesh_core.errors.AttemptError`` to choose the kind of failure; any other exception
    is failure kind ``engine`` with the traceback's last lines. The kind ``host-crashed`` means that
    the instance is broken: its host exits, and all its attempts fail.
    """

    capacity: int
    """How many actions this instance runs at once; may be set by ``load``."""

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the components (by port name). Called once, before any work."""
        ...

    async def run(self, work: Work, progress: Progress) -> Result:
        """Runs one action and returns its outputs; cancelling the task must stop it."""
        ...

    async def close(self) -> None:
        """Frees all resources; the host exits afterwards."""
        ...


class Sleeps(Protocol):
    """A further face of an engine: it can free its devices and keep its process and its weights.

    An engine that has these too is put asleep in place of being closed, where its worker has the
    host memory. Nothing runs in it from ``sleep`` to the end of ``wake``; then its results are what
    they were.
    """

    asleep_mib: int
    """Host memory of its processes while it is asleep, known once it is loaded; 0 if it cannot."""

    async def sleep(self) -> None:
        """Frees the devices; on a CPU what it can do without. An exception ends the instance."""
        ...

    async def wake(self) -> None:
        """Takes the memory back. An exception ends the instance."""
        ...


@dataclass(frozen=True, slots=True)
class ServingCall:
    """One request of a service for an engine.

    Attributes:
        call_id: unique in the engine instance.
        path: such as ``/v1/chat/completions``.
        model: the model's name in the answer.
        body: a request of OpenAI's API; its parameters are checked.
        cache_salt: separates prefix caches of tenants that do not share.
        priority: higher first, above every attempt.
        seed: used where the body has none.
        tool_parser: vLLM's parser of the model's tool calls; empty for none.
        adapter: name of an adapter that the instance has loaded; empty for the model alone.
    """

    call_id: str
    path: str
    model: str
    body: Mapping[str, Any]
    cache_salt: str = ""
    priority: int = 0
    seed: int = 0
    tool_parser: str = ""
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """The answer of a call, or the end of a stream.

    Attributes:
        status: of the HTTP response.
        body: JSON, which is OpenAI's error object unless the status is 200; empty after a stream.
        tokens_in: tokens of the prompt.
        tokens_out: generated tokens.
    """

    status: int = 200
    body: bytes = b""
    tokens_in: int = 0
    tokens_out: int = 0


class CallRefusedError(FlowMeshError):
    """An engine does not take a call now; nothing of it was computed."""

    retryable = True


class Serves(Protocol):
    """The second face of an engine that answers requests of services beside its attempts.

    An engine that has these methods too may be a replica of a service. They are called on the
    event loop of ``run``, concurrently with it. Cancelling the task of ``answer``, or closing the
    iterator of ``stream``, must stop the work. Requests must not change the results of attempts.
    """

    def serves(self) -> tuple[tuple[str, ...], int]:
        """Returns the paths that the loaded engine answers, and how many calls run at once."""
        ...

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers a call.

        Raises:
            AttemptError: of kind host-crashed for the instance; every other error is the call's.
            CallRefusedError: its first token would come later than the engine's target, or the
                instance does not have the adapter.
        """
        ...

    def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """Answers a call piece by piece.

        Yields:
            Server-sent events, whole ones, as they are made; last a ``ServingAnswer``. An answer
            with another status than 200 comes first and alone.

        Raises:
            AttemptError: as ``answer``; ``CallRefusedError`` comes before anything else.
        """
        ...


class HasAdapters(Protocol):
    """A further face of ``Serves``: an engine that has loaded adapters for its calls."""

    adapters: tuple[str, ...]
    """Their names."""


class KeepsTokenTargets(Protocol):
    """A further face of ``Serves``: an engine that generates tokens and keeps their targets."""

    def use_targets(self, targets: TokenTargets, changed: Callable[[int], None]) -> None:
        """Keeps these targets from now on.

        Args:
            targets: the strictest of the services whose calls it answers.
            changed: called with how many calls may run at once, now and when that changes.
        """
        ...


ComponentEnd = Callable[[CallEnded | BaseException, StageBytes], None]


class ServesComponents(Protocol):
    """The third face of an engine that hosts Python components of services."""

    def call_component(
        self, call: ComponentCall, passed: Mapping[str, StageBytes], ended: ComponentEnd
    ) -> asyncio.Future[Any]:
        """Begins a call, in a batch with others.

        Args:
            call: of one component.
            passed: inputs that components of other hosts have made.
            ended: called once with the end, and the value for components of other hosts, empty
                where the body is it. In place of the end it gets what made the call fail, such as
                an AttemptError of kind host-crashed for the instance.

        Returns:
            What drops the call when it is cancelled; its end is not reported then.
        """
        ...

    def forget_values(self, keys: tuple[str, ...]) -> None:
        """Drops results that were kept for further calls."""
        ...

    def profiles(self, changed: Callable[[], None]) -> tuple[ComponentProfile, ...]:
        """Returns what was measured; calls ``changed`` whenever that changes from now on."""
        ...
