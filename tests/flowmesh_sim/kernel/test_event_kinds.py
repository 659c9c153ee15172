"""The names of events in traces do not depend on their Python names."""

from typing import get_args

import msgspec

from flowmesh_core.machine.events import Event
from flowmesh_sim.kernel.event_kinds import KINDS


def test_every_event_has_a_unique_kind() -> None:
    assert set(KINDS) == set(get_args(Event))
    assert len({kind for kind, _ in KINDS.values()}) == len(KINDS)


def test_fields_are_encoded_under_their_fixed_names() -> None:
    for event, (kind, names) in KINDS.items():
        encoded = tuple(field.encode_name for field in msgspec.structs.fields(event))
        assert encoded == names, kind
