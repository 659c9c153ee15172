"""What an engine is to its worker: the class that a plugin implements.

An engine runs in an *engine host*, a process of its own. The agent has fetched every input to local
files before ``run`` is called, hashes and uploads what the engine wrote afterwards, and turns
exceptions into failures, so an engine needs to know nothing of the fabric.

A plugin has two entry points: group ``flowmesh.contracts`` names a callable that returns its
``EngineContract`` objects (light to import), group ``flowmesh.engines`` names the engine class
under the contract's name.
"""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import AttemptError, Failure, FailureKind


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What an engine host may use.

    Attributes:
        devices: device indices it owns; empty on a CPU.
        memory_mib: memory it may use (device memory, or host memory on a CPU).
        threads: CPU threads it may use.
        signature_params: the batch-wide parameters and identity fields of this instance
            (``dtype``, ``batchInvariant``, ``implementation``, ``tensorParallel`` ...).
        scratch: an empty directory that dies with the host.
        mixed: the mixable ports that the work of this instance carries (``adapter``); which
            artifacts come there differs from action to action.
    """

    devices: tuple[int, ...]
    memory_mib: int
    threads: int
    signature_params: Mapping[str, Any]
    scratch: Path
    mixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DatasetInput:
    """A dataset (or one chunk of one).

    Attributes:
        manifest: its schema and its chunks.
        files: the Parquet file of every chunk in order: a local path, or its bytes where it is
            small enough to have come with the assignment.
    """

    manifest: Manifest
    files: tuple[Path | bytes, ...]

    def rows(self) -> list[dict[str, Any]]:
        """All rows in order, as Python values."""
        from flowmesh_store.datasets import read_chunk  # noqa: PLC0415 - pyarrow is heavy

        schema = self.manifest.schema
        return [row for data in self._contents() for row in read_chunk(data, schema)]

    def table(self) -> Any:
        """All rows in order, as one ``pyarrow.Table``; json columns are canonical strings."""
        import pyarrow as pa  # noqa: PLC0415 - pyarrow is heavy

        from flowmesh_store.datasets import read_table  # noqa: PLC0415
        from flowmesh_store.datasets.parquet import arrow_schema  # noqa: PLC0415

        schema = self.manifest.schema
        tables = [read_table(data, schema) for data in self._contents()]
        return pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()

    def _contents(self) -> Iterator[bytes]:
        return (f if isinstance(f, bytes) else f.read_bytes() for f in self.files)


@dataclass(frozen=True, slots=True)
class TreeInput:
    """A model or adapter: a local directory."""

    digest: str
    path: Path


@dataclass(frozen=True, slots=True)
class BlobInput:
    """A blob or metrics: a local file, or bytes where it is small."""

    digest: str
    content: Path | bytes

    def read(self) -> bytes:
        """The bytes."""
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


Input = DatasetInput | TreeInput | BlobInput


@dataclass(frozen=True, slots=True)
class Rows:
    """A dataset output. The host writes it as Parquet and cuts it (or keeps it as one chunk).

    Attributes:
        rows: objects, or a ``pyarrow.Table``.
        schema: the columns' types; found from the rows where None.
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


class TakesCheckpoint(Protocol):
    """Takes a checkpoint over; may be called from any thread and returns at once."""

    def __call__(self, path: Path, done: float) -> None:
        """Takes a directory away: when this returns, nothing is at ``path`` any more.

        The directory is stored in the background. One that is handed over while an older one still
        waits to be stored takes its place. Nothing that goes wrong with it ends the attempt.

        Args:
            path: a directory below ``out_dir`` or the host's ``scratch``, complete and closed.
            done: how far the work was, in the unit and on the scale of ``progress``.

        Raises:
            ValueError: the path is elsewhere, or no directory.
        """
        ...


def _nobody_keeps(path: Path, done: float) -> None:
    """Where no host is around the engine, as in its own tests: the directory still leaves."""
    shutil.rmtree(path)


class HandedBackError(AttemptError):
    """Raised by an engine that stops because ``Work.stopping`` is set.

    The action goes back and another worker takes it up from the newest checkpoint; the attempt
    counts for nothing and nobody pays for it.
    """

    def __init__(self, message: str = "stopped between two steps, as its worker leaves") -> None:
        """Takes what to say of it."""
        super().__init__(Failure(FailureKind.DRAINED, message))


@dataclass(frozen=True, slots=True)
class Work:
    """One action for an engine.

    An engine whose actions run for minutes keeps checkpoints: it calls ``checkpoint`` now and then,
    begins at ``resume`` where there is one, and looks at ``stopping`` between two steps. Resumed or
    not, it gives the same result, as far as its contract promises one (``exact``, ``seeded``). A
    checkpoint that it cannot use (another version wrote it, say) it leaves alone and starts over.

    Attributes:
        action_id: its name; engines may log it.
        attempt_id: this attempt's name.
        params: typed parameters, decoded from the canonical form.
        fields: the identity fields.
        inputs: local inputs by port (for a ``*`` port, by the names the user chose).
        out_dir: an empty directory for outputs, made when it is first asked for.
        cache_salt: separates prefix caches of tenants that do not share.
        priority: higher first, where the engine can order its queue.
        secrets: values sent for this one attempt; never log them.
        resume: the newest checkpoint of this action, whichever attempt on whichever worker made it:
            a directory of this attempt alone, which the engine may change; None to begin at the
            start.
        checkpoint: hands a directory over as the newest checkpoint.
        stopping: set when the attempt is to end soon, since its worker leaves or nobody wants it.
            An engine that keeps checkpoints then writes one, unless ``cancelled`` is set, hands it
            over and raises ``HandedBackError``; half of the worker's grace period is left for
            storing it. An engine that does not look at it goes on until the period is over.
        cancelled: set, before ``stopping``, when nobody wants the attempt any more.
    """

    action_id: str
    attempt_id: str
    params: Mapping[str, Any]
    fields: Mapping[str, Any]
    inputs: Mapping[str, Input]
    out_dir: Path
    cache_salt: str = ""
    priority: int = 0
    secrets: Mapping[str, str] = field(default_factory=dict)
    resume: TreeInput | None = None
    checkpoint: TakesCheckpoint = _nobody_keeps
    stopping: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def dataset(self, port: str) -> DatasetInput:
        """The dataset at a port."""
        value = self.inputs[port]
        if not isinstance(value, DatasetInput):
            raise TypeError(f"port {port!r} carries {type(value).__name__}, not a dataset")
        return value


@dataclass(slots=True)
class Usage:
    """What an attempt used; an engine fills in what it knows.

    Attributes:
        units: work done in the contract's ``work_unit`` (tokens in and out, rows, ...).
        tokens_in: prompt tokens; 0 where it makes no sense.
        tokens_out: generated tokens.
        joules: measured energy; 0 lets the agent estimate (marked as an estimate).
        peak_memory_mib: peak of device memory, or of host memory on a CPU; 0 lets the agent say.
    """

    units: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    joules: float = 0.0
    peak_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What ``run`` returns: one output a port of the contract, and the usage."""

    outputs: Mapping[str, Output]
    usage: Usage = field(default_factory=Usage)


class Progress(Protocol):
    """Tells how far an action is; cheap to call often, from any thread (the host thins it out)."""

    def __call__(self, done: float, total: float, unit: str) -> None:
        """Reports ``done`` of ``total`` in ``unit`` (``rows``, ``tokens``, ``steps``)."""
        ...


class Engine(Protocol):
    """An engine instance: made, loaded once, then given work until it is closed.

    ``run`` is called concurrently, up to ``capacity`` at once, on one asyncio loop; blocking work
    belongs in ``asyncio.to_thread``. Cancelling the task of ``run`` must stop the work. An engine
    raises ``flowmesh_core.errors.AttemptError`` to choose the kind of failure; any other exception
    is failure kind ``engine`` with the traceback's last lines. The kind ``host-crashed`` says that
    the instance is broken: its host ends, and all that it ran with it.
    """

    capacity: int
    """How many actions this instance takes at once; may be set by ``load``."""

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the components (by port name). Called once, before any work."""
        ...

    async def run(self, work: Work, progress: Progress) -> Result:
        """Does one action."""
        ...

    async def close(self) -> None:
        """Frees everything; the host exits afterwards."""
        ...
