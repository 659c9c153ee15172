"""The content of an index of ready actions, in a form that does not depend on its history."""

from flowmesh_core.fleet.ready_index import ReadyIndex


def contents(index: ReadyIndex) -> dict[str, object]:
    """What two indexes of the same actions have in common."""
    return {
        "groups": {
            kind: (
                group.count,
                group.cohort.work,
                {t: [a.action_id for _, a, _ in q] for t, q in group.queues.items()},
            )
            for kind, group in index.groups.items()
        },
        "cohorts": {kind[1:]: index.groups[kind].cohort.count for kind in index.groups},
        "heads": {t: [a.action_id for _, a, _ in heads] for t, heads in index.heads.items()},
        "signatures": dict(index.signatures),
        "wanted": dict(index.wanted),
        "backoff": [a.action_id for _, _, a in index.backoff],
        "count": len(index),
    }
