"""Renders a conversation with tools by two chat templates, one of which supports tools.

A program, since transformers warns while it is imported: ``tool_templates.py MODEL`` prints JSON.
"""

import json
import sys

from transformers import AutoTokenizer

from flowmesh_worker.engines.agent.conversation import Conversation
from flowmesh_worker.engines.agent.protocols import TemplateCalls
from flowmesh_worker.engines.agent.tools.calculator import CalculatorTool
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox
from flowmesh_worker.engines.tokens import Tokenizing

HERMES = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{% endfor %}"
)
CALL = '{"name": "calculator", "arguments": {"expression": "1+1"}}'

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
tools = Toolbox([CalculatorTool()], 100).descriptions()
plain = Tokenizing(tokenizer, 4096).supports_tools(tools)
tokenizer.chat_template = HERMES
tokenizing = Tokenizing(tokenizer, 4096)
conversation = Conversation([{"role": "user", "content": "1+1?"}], TemplateCalls(tools), 3)
conversation.take(f"<tool_call>{CALL}</tool_call>", cut=False)
conversation.give(["it is two"])
text = tokenizer.decode(tokenizing.chat(conversation.messages, conversation.described))
json.dump({"plain": plain, "hermes": tokenizing.supports_tools(tools), "text": text}, sys.stdout)
