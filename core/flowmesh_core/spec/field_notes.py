"""What is known of a workflow's fields besides their values, for the places and words of errors."""

from dataclasses import dataclass, field

from flowmesh_documents.paths import Key

Keys = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class FieldNotes:
    """Where values come from, and what is missing because of problems that are reported.

    Attributes:
        origins: the places that a parameter was filled in, with the reference.
        left_out: the fields that were left out or replaced because of a problem, and the parameters
            without a value.
        step_names: the names, as written, of steps that got another one; an empty one where the
            name is missing, or no text.
    """

    origins: dict[Keys, str] = field(default_factory=dict)
    left_out: frozenset[Keys] = frozenset()
    step_names: frozenset[str] = frozenset()

    def origin(self, keys: Keys) -> str:
        """Returns the end of an error about a field: the parameter that it came from, if any."""
        for n in range(len(keys), 1, -1) if self.origins else ():
            if (reference := self.origins.get(keys[:n])) is not None:
                return f" (from {reference})"
        return ""

    def is_filled(self, keys: Keys) -> bool:
        """Whether a parameter was filled in somewhere in a field."""
        return any(place[: len(keys)] == keys for place in self.origins)

    def follows(self, keys: Keys) -> bool:
        """Whether a field, a part of it or what it is in was left out, as its problems follow."""
        return any(keys[: len(k)] == k[: len(keys)] for k in self.left_out)

    def may_mean_step(self, reference: str) -> bool:
        """Whether a reference may mean a step whose name is wrong."""
        text = reference.strip()
        return any(
            not name or text == name or text.startswith((f"{name}.", f"{name}["))
            for name in self.step_names
        )

    def lacks_input(self, name: str) -> bool:
        """Whether an input is missing because of a problem."""
        return self.follows(("spec", "inputs", name))

    def unknown_names(self, step: Keys) -> frozenset[Keys]:
        """Returns the parameters, and the matrix names of a step, that have no value.

        Args:
            step: the step's place.
        """
        if not self.left_out:
            return frozenset()
        matrix = (*step, "matrix")
        params = {("params", *k[2:3]) for k in self.left_out if k[:2] == ("spec", "params")}
        own = {("matrix", *k[4:5]) for k in self.left_out if k[: len(matrix)] == matrix}
        return frozenset(params | own)
