"""The methods of a class that is a Python component: whether a call is one batch or many steps.

Asked by the compiler about the text of the code, and by the host about the class that it has
loaded.
"""

from collections.abc import Collection

COMPUTE, STEP = "compute", "step"
STEP_METHODS = ("start", STEP, "finish")
"""Those of a component that iterates; ``remaining`` is optional."""
COMPONENT_METHODS = frozenset({COMPUTE, *STEP_METHODS})
REMAINING = "remaining"


def methods_problem(name: str, methods: Collection[str]) -> str:
    """Returns why a class is not a component; empty where it is one.

    Args:
        name: of the class.
        methods: the names of its methods; further ones are its own.
    """
    if STEP in methods and COMPUTE in methods:
        return (
            f"class {name} has both compute and step: expected compute, or start, step and finish"
            " for calls that take several steps"
        )
    if STEP in methods:
        lacking = [method for method in STEP_METHODS if method not in methods]
        if lacking:
            return (
                f"class {name} has step and no {' and no '.join(lacking)}: expected start, step"
                " and finish"
            )
        return ""
    if COMPUTE not in methods:
        return (
            f"class {name} has neither compute nor step: expected a method compute, or start, step"
            " and finish for calls that take several steps"
        )
    return ""
