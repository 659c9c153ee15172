"""The models that requests may name: built-in ones, aliases, and hf:// addresses."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_api.openai.models import ModelList, ModelObject
from flowmesh_core.catalog.builtin_models import BUILTIN_MODELS
from flowmesh_core.openai.errors import OpenAiError

_HUB = "hf://"
_NOT_FOUND = 404
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ModelNames:
    """Resolves names of models.

    Attributes:
        aliases: a built-in name or an address by alias; set by administrators.
    """

    aliases: Mapping[str, str]

    def source(self, name: str) -> str:
        """Returns what a workflow's input writes for a model.

        Raises:
            OpenAiError: there is no such model.
        """
        if name in self.aliases:
            return self.aliases[name]
        if name in BUILTIN_MODELS or name.startswith(_HUB):
            return name
        raise OpenAiError(
            f"The model '{name[:_SHOWN]}' does not exist: this fabric has"
            f" {', '.join(self._names())}, and models named as hf://org/name.",
            param="model",
            code="model_not_found",
            status=_NOT_FOUND,
        )

    def all(self) -> ModelList:
        """Returns the models that have a name here."""
        return ModelList(tuple(ModelObject(name) for name in self._names()))

    def one(self, name: str) -> ModelObject:
        """Returns a model.

        Raises:
            OpenAiError: there is no such model.
        """
        self.source(name)
        return ModelObject(name)

    def _names(self) -> list[str]:
        return sorted({*BUILTIN_MODELS, *self.aliases})
