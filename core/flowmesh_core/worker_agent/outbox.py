"""The instructions of one call of the agent, and the time of that call."""

from flowmesh_core.worker_agent.instructions import Instruction


class Outbox:
    """Collects instructions in order.

    Attributes:
        now_s: the agent's clock, which never steps back.
        wall_s: Unix time by this computer's clock; goes into reports and decides nothing.
    """

    __slots__ = ("_instructions", "now_s", "wall_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_s = 0.0
        self._instructions: list[Instruction] = []

    def add(self, instruction: Instruction) -> None:
        """Appends an instruction."""
        self._instructions.append(instruction)

    def take(self) -> list[Instruction]:
        """Returns and removes what has been collected."""
        taken, self._instructions = self._instructions, []
        return taken
