"""Where a result was produced, as the API shows it: without the attempts of a step's parts."""

import msgspec

from flowmesh_api.v1 import audit
from flowmesh_core.protocol.results import Provenance

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Provenance)}


def provenance_of(result: Provenance) -> audit.Provenance:
    """Returns where and how a result was produced.

    A field with its default gets the other class's default: both are left out of the JSON, where a
    field with an equal value is not (``omit_defaults`` compares by identity). Other values stay as
    they are: an integer in a field of floats stays an integer.
    """
    given = {name: getattr(result, name) for name in audit.Provenance.__struct_fields__}
    return audit.Provenance(**{n: v for n, v in given.items() if v is not _DEFAULTS[n]})
