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
