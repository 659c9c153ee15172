"""For which subscriptions an attempt counts.

Called where an attempt fails, times out or runs for long: those that it does not count for stay.
"""

from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.terms import Terms
from flowmesh_core.placement.constraints import unmet


def eligible(attempt: Attempt, terms: Terms) -> bool:
    """Whether an attempt counts for a subscription: it might have been made for that one alone.

    Its worker meets the subscription's own requirement, and its host reserves as much memory. Only
    such attempts count against a subscription; a result counts for all.
    """
    if attempt.info is terms.info and not attempt.adopted:
        return True
    requirement = terms.info.requirement
    if unmet(requirement, attempt.shape) is not None:
        return False
    return not attempt.memory_mib or attempt.memory_mib >= requirement.memory_mib
