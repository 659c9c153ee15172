"""Models of OpenAI's API."""

import msgspec


class ModelObject(msgspec.Struct, frozen=True):
    """A model that requests may name."""

    id: str
    created: int = 0
    owned_by: str = "flowmesh"
    object: str = "model"


class ModelList(msgspec.Struct, frozen=True):
    """All models with a name of this fabric; others are named as ``hf://org/name``."""

    data: tuple[ModelObject, ...]
    object: str = "list"
