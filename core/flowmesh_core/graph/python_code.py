"""What a text says as Python: whether it is a module, and what it defines. Nothing is run."""

import ast
from collections.abc import Iterator

from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.component_methods import (
    COMPONENT_METHODS,
    COMPUTE,
    STEP,
    methods_problem,
)

_NAMESPACES = frozenset({"exec", "globals", "locals", "vars"})
"""Functions by which a module may define names that its text does not show."""


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


def function_problem(code: str, function: str) -> str:
    """Returns why a module cannot define a function; empty where it may.

    Args:
        code: a Python module.
        function: the name of a function, a class or another callable.
    """
    module = ast.parse(code)
    bound = {name for node in ast.walk(module) for name in _bound(node)}
    used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    if function in bound or "*" in bound or used & _NAMESPACES:
        return ""
    defined = [n.name for n in module.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return f"{function!r} is not defined in it{did_you_mean(function, defined)}"


def class_problem(code: str, name: str) -> str:
    """Returns why a class of a module cannot be a component; empty where it may be one.

    Also empty where the text does not tell: for a class with bases or decorators, one that is not
    defined once, as a statement of the module, or one that may get methods in another way.

    Args:
        code: a Python module.
        name: of the class; it may be a function.
    """
    module = ast.parse(code)
    bindings = [node for node in ast.walk(module) if name in _bound(node)]
    found = next((n for n in module.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if found is None or len(bindings) > 1 or found.bases or found.keywords or found.decorator_list:
        return ""
    methods = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    problem = methods_problem(name, methods)
    others = {bound for node in ast.walk(found) for bound in _bound(node)} | {
        node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)
    }
    may_have = (others - methods) & COMPONENT_METHODS
    is_certain = {COMPUTE, STEP} <= methods or not (may_have or "__getattr__" in methods)
    return problem if is_certain else ""


def _bound(node: ast.AST) -> Iterator[str]:
    """Yields the names that a node binds, anywhere: it is enough that one may be the module's."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (a.asname or a.name.partition(".")[0] for a in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


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
