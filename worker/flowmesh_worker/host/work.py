"""Builds an engine's ``Work`` from a frame: local inputs, and a directory created on first use."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from flowmesh_worker.engine_api import BlobInput, DatasetInput, Input, TreeInput, Work
from flowmesh_worker.host.checkpoints import AttemptSignals, CheckpointTaker
from flowmesh_worker.ipc.frames import HostInput, RunAttempt
from flowmesh_worker.secret_values import SecretValues


class AttemptDir:
    """An attempt's directory: created on first use, removed when the attempt is released."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.made = False

    @property
    def path(self) -> Path:
        """The path, whether it exists or not."""
        return Path(self._path)

    def use(self) -> Path:
        """Creates the directory if it does not exist; returns its path."""
        if not self.made:
            self.path.mkdir(parents=True)
            self.made = True
        return self.path

    def remove(self) -> None:
        """Removes the directory and its content."""
        if self.made:
            shutil.rmtree(self.path, ignore_errors=True)


class HostWork(Work):
    """A :class:`Work` whose ``out_dir`` is created when it is first read."""

    __slots__ = ("_outputs",)
    _outputs: AttemptDir

    def __init__(
        self,
        run: RunAttempt,
        inputs: Mapping[str, Input],
        outputs: AttemptDir,
        checkpoint: CheckpointTaker,
        signals: AttemptSignals,
    ) -> None:
        resume = run.resume
        values = {
            "action_id": run.action_id,
            "attempt_id": run.attempt_id,
            "params": run.params,
            "fields": run.fields,
            "inputs": inputs,
            "cache_salt": run.cache_salt,
            "tenant": run.tenant,
            "priority": run.priority,
            "secrets": SecretValues(run.secrets, run.secret_hosts),
            "resume": TreeInput(resume.digest, Path(resume.paths[0])) if resume else None,
            "checkpoint": checkpoint,
            "journal": checkpoint.journal,
            "stopping": signals.stopping,
            "cancelled": signals.cancelled,
            "_outputs": outputs,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def out_dir(self) -> Path:
        """The directory for outputs, created on first use."""
        return self._outputs.use()


def local_inputs(given: Mapping[str, HostInput]) -> dict[str, Input]:
    """Returns the engine's inputs by port."""
    return {port: _input(value) for port, value in given.items()}


def verified_here(
    given: Mapping[str, HostInput], inputs: Mapping[str, Input]
) -> dict[str, tuple[int, ...]]:
    """Returns by port the chunks that this attempt was the first to compare.

    Args:
        given: the inputs as the agent sent them.
        inputs: the same after the attempt.
    """
    found = {}
    for port, value in inputs.items():
        if isinstance(value, DatasetInput):
            new = value.verified.difference(given[port].verified)
            if new:
                found[port] = tuple(sorted(new))
    return found


def _input(given: HostInput) -> Input:
    match given.kind:
        case "tree":
            return TreeInput(given.digest, Path(given.paths[0]))
        case "dataset":
            assert given.manifest is not None
            paths = iter(given.paths)
            files = tuple(
                given.contents[c.blob] if c.blob in given.contents else Path(next(paths))
                for c in given.manifest.chunks
            )
            return DatasetInput(given.manifest, files, set(given.verified))
    content = Path(given.paths[0]) if given.paths else given.contents[given.blob]
    return BlobInput(given.digest, content)
