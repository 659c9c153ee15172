"""The JSON schemas of actions: a wrong one is bad input of the action.

Called by ``llm.generate``, by a judging ``llm.score`` and by the verifier ``json-valid``. A grammar
constrains sampling, but supports only a part of JSON Schema, and a text may be cut off: only this
check proves that a completion satisfies its schema.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.json_schemas import BoundedSchema
from flowmesh_worker.engines.errors import bad_input


class JsonSchema(BoundedSchema):
    """A compiled schema. Not thread-safe."""

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        """Compiles the schema.

        Args:
            schema: the schema.
            where: the parameter that contains it, for errors.

        Raises:
            AttemptError: bad input; it is not a JSON schema.
        """
        super().__init__(schema, where, bad_input)
