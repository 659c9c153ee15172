"""Reads completions with vLLM's parsers of tool calls.

A program, since vLLM warns while it is imported: ``tool_parsers.py MODEL`` prints JSON.
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from transformers import AutoTokenizer

from flowmesh_worker.engine_api import AttemptError
from flowmesh_worker.engines.agent.tools.calculator import CalculatorTool
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox
from flowmesh_worker.engines.agent.vllm_parser import ParserCalls

CALL = '{"name": "calculator", "arguments": {"expression": "1+1"}}'
COMPLETIONS = {
    "hermes": [
        f"I compute.<tool_call>{CALL}</tool_call>",
        f"<tool_call>{CALL}</tool_call>" * 9,
        "<tool_call>calculator</tool_call>",
        " It is 2. ",
    ],
    "pythonic": ['[calculator(expression="1+1"), calculator(expression="2+2")]', "It is 2."],
    "xlam": [f"[{CALL}]"],
    "mistral": [],
    "qwen4": [],
}

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tools = Toolbox([CalculatorTool()], 100).descriptions()


def read(name: str, texts: list[str]) -> Any:
    try:
        calls = ParserCalls(tools, name, tokenizer)
    except AttemptError as e:
        return f"{e.failure.message}; {e.failure.remedy}"
    return [asdict(calls.read(text)) for text in texts]


json.dump({name: read(name, texts) for name, texts in COMPLETIONS.items()}, sys.stdout)
