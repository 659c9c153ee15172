"""What a run made, by name: its outputs, and the ports of its steps."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from flowmesh_sdk.errors import ApiError, MissingOutputError
from flowmesh_sdk.model_folder import ModelFolder
from flowmesh_sdk.rows import Rows

Output = Rows | ModelFolder | dict[str, Any] | None
"""Of a run: rows of a data set, a model's or adapter's folder, metrics, or None where its step was
skipped."""
T = TypeVar("T")


class NamedOutputs(dict[str, Output]):
    """The outputs of a run by name; another name raises ``MissingOutputError``."""

    def __missing__(self, name: str) -> Output:
        """Raises the error, which lists the names."""
        raise MissingOutputError(
            f"there is no output {name!r}; it has {', '.join(self) or 'none'}",
            where="result()",
            remedy="use one of these names, or declare it in spec.outputs",
        )


class StepPorts(Mapping[str, Output]):
    """What a step made, by port. A port that the fabric refused raises its error when it is read.

    So one whose content was revoked leaves the others readable.
    """

    def __init__(self, ports: Mapping[str, Output | ApiError]) -> None:
        """Keeps what was read, or the error, of each port."""
        self._ports = ports

    def __getitem__(self, port: str) -> Output:
        """Returns what is on a port; raises ``KeyError``, or ``ApiError`` where it was refused."""
        found = self._ports[port]
        if isinstance(found, ApiError):
            raise found
        return found

    def __contains__(self, port: object) -> bool:
        """Whether the step made something of this name, readable or not."""
        return port in self._ports

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the ports."""
        return iter(self._ports)

    def __len__(self) -> int:
        """Returns the number of ports."""
        return len(self._ports)


class RunStep:
    """A step of a run that has ended, with what it made; asks nothing by itself.

    Attributes:
        path: ``sft``, or ``tune[lr=1e-5]`` of a step with a matrix.
        state: a ``StepState``, such as ``COMPLETED``.
        outputs: what it made, by port; one that the fabric refused raises when it is read.
    """

    def __init__(self, path: str, state: str, outputs: StepPorts) -> None:
        """Keeps what :meth:`Run.step` has read."""
        self.path = path
        self.state = state
        self.outputs = outputs

    @property
    def adapter(self) -> ModelFolder:
        """The adapter that it trained; raises ``MissingOutputError`` where there is none."""
        return self._port("adapter", ModelFolder)

    @property
    def model(self) -> ModelFolder:
        """The model that it made; raises ``MissingOutputError`` where there is none."""
        return self._port("model", ModelFolder)

    @property
    def rows(self) -> Rows:
        """Its rows; raises ``MissingOutputError`` where there are none."""
        return self._port("rows", Rows)

    @property
    def metrics(self) -> dict[str, Any]:
        """Its metrics by name; raises ``MissingOutputError`` where there are none."""
        return self._port("metrics", dict)

    def _port(self, port: str, kind: type[T]) -> T:
        found = self.outputs.get(port)
        if isinstance(found, kind):
            return found
        raise MissingOutputError(
            f"step {self.path!r} ({self.state.lower()}) made no {port};"
            f" it made {', '.join(self.outputs) or 'nothing'}",
            where="step()",
            remedy="use one of these ports, or wait() for the run first",
        )

    def __repr__(self) -> str:
        """Shows its path, its state and the ports."""
        return f"<RunStep {self.path} {self.state}: {', '.join(self.outputs) or 'nothing made'}>"
