"""Whether a text is Python; its names are not looked up and nothing is run."""

import ast


def python_problem(code: str) -> str:
    """Returns why a text is not a Python module; empty where it is one."""
    try:
        ast.parse(code)
    except (RecursionError, MemoryError):
        return "not Python: nested too deeply"
    except (SyntaxError, ValueError) as e:
        line = f" on line {e.lineno} of it" if isinstance(e, SyntaxError) else ""
        return f"not Python: {getattr(e, 'msg', e)}{line}"
    return ""


def can_leave_out(code: str, function: str, argument: str) -> bool:
    """Whether a function of a module can be called without this argument.

    True also where the text does not tell, since the function is not a plain ``def``.

    Args:
        code: a Python module.
        function: the function's name.
        argument: the argument's name.
    """
    found = [
        node
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    ]
    if not found or found[-1].decorator_list:
        return True
    arguments = found[-1].args
    plain = [*arguments.posonlyargs, *arguments.args]
    needed = plain[: len(plain) - len(arguments.defaults)]
    needed += [
        a for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not value
    ]
    return argument not in [a.arg for a in needed]
