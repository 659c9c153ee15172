"""The names of vLLM's parsers of tool calls, read without importing vLLM, which takes seconds."""

import ast
import importlib.util
from pathlib import Path

_TABLE = "_TOOL_PARSERS_TO_REGISTER"


def tool_parser_names() -> tuple[str, ...]:
    """Returns the names that the installed vLLM knows; none where it is not installed."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return ()
    source = Path(found.origin).with_name("tool_parsers") / "__init__.py"
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == _TABLE:
            return tuple(sorted(ast.literal_eval(node.value)))
    return ()
