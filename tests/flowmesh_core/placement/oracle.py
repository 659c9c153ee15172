"""The exact optimum of a scheduling cycle, to compare ``decide`` with.

The oracle is given the actions that ``decide`` served, the coefficients of the snapshot (those that
``explain`` shows), and the same capacities: places of a lane that run, places that queue one
capacity ahead, memory for lanes that hold nothing yet. It maximises
sum(alpha * throughput + beta * (1 - cost) + gamma * locality) and must serve every one of them.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.placement.action_groups import ActionGroup, groups_of
from flowmesh_core.placement.candidates import CandidateFinder, with_inputs
from flowmesh_core.placement.capacity import AHEAD, RUN
from flowmesh_core.placement.cycle import SchedulingCycle


@dataclass
class Instance:
    """What is to be assigned.

    Attributes:
        served: the actions.
        gain: (action, worker, tier) -> coefficient.
        slots: (worker, signature, tier) -> places.
        memory: (worker, signature) -> memory that the first action takes there.
        free: memory by worker.
    """

    served: list[ReadyAction]
    gain: dict[tuple[int, int, int], float]
    slots: dict[tuple[int, str, int], int]
    memory: dict[tuple[int, str], int]
    free: list[int]


def instance(snapshot: Snapshot, model: CostModel, decision: Decision) -> Instance:
    """The problem that ``decide`` solved, with the actions that it served."""
    tick = SchedulingCycle(snapshot, model)
    groups = groups_of(snapshot)
    candidates = CandidateFinder(tick)
    by_key: dict[object, ActionGroup] = {(g.weights, *g.cohort): g for g in groups}
    names = {name for p in decision.placements for name in p.actions}
    served = [a for a in snapshot.ready if a.action_id in names]
    found = Instance(served, {}, {}, {}, [w.free_memory_mib for w in snapshot.workers])
    for number, action in enumerate(served):
        group = by_key[action.kind]
        outlook = candidates.free_slots(group)
        prospects = candidates.estimates(group, outlook)
        assert prospects is not None
        scale = prospects.scale(group.weights)
        for site, known in zip(outlook.sites, prospects.all, strict=True):
            for member in site.members:
                prospect = with_inputs(tick, known, action, member)
                for tier in (RUN, AHEAD):
                    if tier >= prospect.first_tier:
                        value = scale.utility(prospect, tier) + action.weights.beta
                        found.gain[number, member, tier] = value
                _places(found, tick, group, member)
    return found


def _places(found: Instance, tick: SchedulingCycle, group: ActionGroup, member: int) -> None:
    account = tick.accounts[member]
    signature = group.info.signature
    lane = account.instance(group.info) or account.new_instance(group.info)
    held = lane.assigned
    found.slots[member, signature, RUN] = max(0, min(lane.even_share, lane.limit) - held)
    found.slots[member, signature, AHEAD] = max(0, lane.limit - max(held, lane.even_share))
    found.memory[member, signature] = 0 if held else lane.memory_mib


def value_of(problem: Instance, snapshot: Snapshot, decision: Decision) -> float:
    """The objective of a decision; a lane's first places are those that run."""
    number = {a.action_id: n for n, a in enumerate(problem.served)}
    index = {w.name: i for i, w in enumerate(snapshot.workers)}
    total = 0.0
    for placement in decision.placements:
        member = index[placement.worker]
        running = problem.slots[member, placement.signature, RUN]
        # within a lane the oracle may choose who runs at once, and so may we
        gains = [
            [problem.gain.get((number[a], member, tier), -1e9) for tier in (RUN, AHEAD)]
            for a in placement.actions
        ]
        gains.sort(key=lambda g: g[1] - g[0])
        total += sum(g[RUN] for g in gains[:running]) + sum(g[AHEAD] for g in gains[running:])
    return total


def optimum(problem: Instance) -> float:
    """The exact optimum by mixed-integer programming."""
    keys = list(problem.gain)
    lanes = sorted({(m, problem.served[a].signature) for a, m, _ in keys})
    column = {key: n for n, key in enumerate(keys)}
    opened = {key: len(keys) + n for n, key in enumerate(lanes)}
    rows: list[tuple[dict[int, float], float, float]] = []
    by_action: dict[int, dict[int, float]] = {}
    by_slot: dict[tuple[int, str, int], dict[int, float]] = {}
    by_lane: dict[tuple[int, str], dict[int, float]] = {}
    for (a, m, t), n in column.items():
        signature = problem.served[a].signature
        by_action.setdefault(a, {})[n] = 1.0
        by_slot.setdefault((m, signature, t), {})[n] = 1.0
        by_lane.setdefault((m, signature), {})[n] = 1.0
    rows += [(row, 1.0, 1.0) for row in by_action.values()]
    rows += [(row, 0.0, float(problem.slots[slot])) for slot, row in by_slot.items()]
    by_worker: dict[int, dict[int, float]] = {}
    for lane, row in by_lane.items():
        if problem.memory[lane]:
            places = sum(problem.slots[(*lane, t)] for t in (RUN, AHEAD))
            rows.append((row | {opened[lane]: -float(places)}, -np.inf, 0.0))
            by_worker.setdefault(lane[0], {})[opened[lane]] = float(problem.memory[lane])
    rows += [(row, 0.0, float(problem.free[m])) for m, row in by_worker.items()]
    cells = [(i, j, v) for i, (row, _, _) in enumerate(rows) for j, v in row.items()]
    i, j, v = zip(*cells, strict=True)
    width = len(keys) + len(lanes)
    matrix = coo_matrix((v, (i, j)), shape=(len(rows), width)).tocsr()
    cost = np.array([-problem.gain[key] for key in keys] + [0.0] * len(lanes))
    low, high = (np.array([row[n] for row in rows]) for n in (1, 2))
    result = milp(
        cost,
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.ones(width),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-4, "time_limit": 60},
    )
    assert result.x is not None, result.message
    return float(-result.fun)


def brute_force(problem: Instance) -> float:
    """The exact optimum by trying everything; for a handful of actions and workers."""
    choices = [
        [(m, t, g) for (a, m, t), g in problem.gain.items() if a == n]
        for n in range(len(problem.served))
    ]
    best = 0.0
    for chosen in product(*choices):
        used: dict[tuple[int, str, int], int] = {}
        memory: dict[int, set[str]] = {}
        for action, (m, t, _) in zip(problem.served, chosen, strict=True):
            used[m, action.signature, t] = used.get((m, action.signature, t), 0) + 1
            memory.setdefault(m, set()).add(action.signature)
        fits = all(count <= problem.slots[slot] for slot, count in used.items()) and all(
            sum(problem.memory[m, s] for s in held) <= problem.free[m] for m, held in memory.items()
        )
        if fits:
            best = max(best, sum(g for _, _, g in chosen))
    return best
