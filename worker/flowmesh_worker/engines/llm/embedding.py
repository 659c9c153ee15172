"""What ``llm.embed`` needs of the library that runs its model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flowmesh_worker.engines.tokens import Tokenizing

TokenIds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingJob:
    """The texts of one action.

    Attributes:
        id: unique in the engine instance.
        texts: the tokens of each, without repetitions.
        normalize: whether vectors are scaled to length 1.
        priority: higher first.
    """

    id: str
    texts: Sequence[TokenIds]
    normalize: bool
    priority: int = 0


class EmbeddingBackend(Protocol):
    """A loaded model; see :mod:`torch_embedding` and :mod:`vllm_embedding`."""

    @property
    def tokenizing(self) -> Tokenizing:
        """The model's tokenizer."""
        ...

    async def embed(
        self, job: EmbeddingJob, done: Callable[[TokenIds], None]
    ) -> dict[TokenIds, list[float]]:
        """Returns a vector for each text.

        Args:
            job: the texts.
            done: called with each text that has its vector.

        Raises:
            AttemptError: the library failed, or the engine has ended.
        """
        ...

    async def close(self) -> None:
        """Frees the model."""
        ...
