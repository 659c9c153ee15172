"""The instructions of one call of the machine, and the time at which it was called."""

from flowmesh_core.worker_agent.instructions import Instruction


class Outbox:
    """Collects instructions in order.

    Attributes:
        now_s: the machine's clock, which never steps back.
        wall_s: Unix time by this machine's clock; goes into reports and decides nothing.
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
        """Returns what has been collected, and starts anew."""
        taken, self._instructions = self._instructions, []
        return taken
