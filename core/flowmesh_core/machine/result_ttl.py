"""How long a result stays valid: as long as the policy of any of its subscribers wants it."""

from collections.abc import Iterable

from flowmesh_core.machine.state import State


def expires_s(state: State, uids: Iterable[str], now_s: float) -> float:
    """Returns when a result of these runs expires; 0 for never.

    The longest of their policies holds, in any order of subscription. A policy without a ``ttl``
    has the fabric's.
    """
    default = state.settings.result_ttl_s
    given = [state.runs[uid].scopes.ttl_s for uid in uids]
    wanted = [default if ttl_s is None else ttl_s for ttl_s in given] or [default]
    return now_s + max(wanted) if all(wanted) else 0.0
