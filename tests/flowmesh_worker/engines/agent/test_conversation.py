"""The state machine of a conversation: completions in, calls out, and its ends."""

import pytest

from flowmesh_worker.engines.agent.conversation import Conversation
from flowmesh_worker.engines.agent.protocols import (
    CallProtocol,
    ConstrainedCalls,
    PromptedCalls,
    TemplateCalls,
)
from flowmesh_worker.engines.agent.tools.calculator import CalculatorTool
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox

TOOLS = Toolbox([CalculatorTool()], 100).descriptions()
CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}</tool_call>'
BAD = "<tool_call>calculator</tool_call>"
ASKED = (
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "1+1?"},
)


def conversation(protocol: CallProtocol | None = None, max_turns: int = 4) -> Conversation:
    return Conversation(ASKED, protocol or PromptedCalls(TOOLS), max_turns)


def test_a_call_and_its_result_lead_to_an_answer() -> None:
    c = conversation()
    [call] = c.take(CALL, cut=False)
    assert (call.name, call.arguments) == ("calculator", {"expression": "1+1"})
    c.give(["2"])
    assert not c.finish_reason
    assert c.take("It is 2.", cut=False) == ()
    assert (c.finish_reason, c.answer, c.turns) == ("answered", "It is 2.", 2)
    assert c.transcript == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "1+1?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "calculator", "arguments": {"expression": "1+1"}}],
        },
        {"role": "tool", "content": "2", "name": "calculator"},
        {"role": "assistant", "content": "It is 2."},
    ]


def test_tools_are_described_in_a_system_message_if_the_template_has_no_support_for_them() -> None:
    system, user = conversation().messages
    assert system["content"].startswith("be brief\n\nYou may call tools.")
    assert '"name": "calculator"' in system["content"]
    assert user == {"role": "user", "content": "1+1?"}
    bare = Conversation([{"role": "user", "content": "hi"}], PromptedCalls(TOOLS), 4)
    assert [m["role"] for m in bare.messages] == ["system", "user"]
    assert [m["role"] for m in bare.transcript] == ["user"]


def test_tool_results_are_chat_text_or_tool_messages_of_the_template() -> None:
    written, taught = conversation(), conversation(TemplateCalls(TOOLS))
    for c in (written, taught):
        c.take(CALL, cut=False)
        c.give(["2"])
    assert written.messages[-2:] == [
        {"role": "assistant", "content": CALL},
        {"role": "user", "content": "<tool_response>\n2\n</tool_response>"},
    ]
    assert taught.messages[:2] == list(ASKED)
    function = {"name": "calculator", "arguments": {"expression": "1+1"}}
    call = {"id": "call00000", "type": "function", "function": function}
    assert taught.messages[2:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00000", "name": "calculator", "content": "2"},
    ]
    assert written.transcript == taught.transcript


def test_text_results_of_one_turn_keep_the_roles_alternating() -> None:
    c = conversation()
    c.take(CALL + CALL, cut=False)
    c.give(["2", "3"])
    assert [m["role"] for m in c.messages] == ["system", "user", "assistant", "user"]
    assert c.messages[-1]["content"].count("<tool_response>") == 2
    taught = conversation(TemplateCalls(TOOLS))
    for _ in range(2):
        taught.take(CALL + CALL, cut=False)
        taught.give(["2", "3"])
    made = [c["id"] for m in taught.messages for c in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in taught.messages if m["role"] == "tool"]
    assert made == answered == [f"call{n:05d}" for n in range(4)]


def test_an_answer_without_a_call_ends_the_conversation_and_shows_if_it_was_truncated() -> None:
    done, cut = conversation(), conversation()
    done.take("two", cut=False)
    cut.take("tw", cut=True)
    assert (done.finish_reason, cut.finish_reason) == ("answered", "length")


def test_turns_are_bounded_and_the_last_calls_are_not_run() -> None:
    c = conversation(max_turns=2)
    c.take(CALL, cut=False)
    c.give(["2"])
    assert c.take(CALL, cut=False) == ()
    assert (c.finish_reason, c.answer, c.turns) == ("max-turns", None, 2)


def test_an_unreadable_call_is_reported_to_the_model_which_may_correct_it() -> None:
    c = conversation(max_turns=9)
    for _ in range(2):
        assert c.take(BAD, cut=False) == ()
        assert "error: the call is no JSON object" in c.messages[-1]["content"]
    c.take(CALL, cut=False)
    c.give(["2"])
    for ended in ("", "", "bad-call"):
        c.take(BAD, cut=False)
        assert c.finish_reason == ended


def test_bad_calls_also_end_at_the_maximum_number_of_turns() -> None:
    c = conversation(max_turns=1)
    c.take(BAD, cut=False)
    assert c.finish_reason == "max-turns"


def test_a_constrained_conversation_begins_with_a_call_and_ends_with_an_answer() -> None:
    c = conversation(ConstrainedCalls(TOOLS), max_turns=3)
    kinds = []
    for said in ('{"name": "calculator", "arguments": {"expression": "1+1"}}',) * 2:
        schema = c.schema() or {}
        kinds.append([next(iter(option["properties"])) for option in schema["anyOf"]])
        c.take(said, cut=False)
        c.give(["2"])
    assert kinds == [["name"], ["name", "answer"]]
    assert (c.schema() or {})["required"] == ["answer"]
    c.take('{"answer": "2"}', cut=False)
    assert (c.finish_reason, c.answer) == ("answered", "2")


@pytest.mark.parametrize(
    "protocol", [PromptedCalls(TOOLS), ConstrainedCalls(TOOLS), TemplateCalls(TOOLS)]
)
def test_the_seed_depends_on_the_whole_conversation(protocol: CallProtocol) -> None:
    one, other = conversation(protocol), conversation(protocol)
    said = CALL if not isinstance(protocol, ConstrainedCalls) else CALL[11:-12]
    assert one.canonical() == other.canonical()
    seen = {one.canonical()}
    for c, result in ((one, "2"), (other, "3")):
        c.take(said, cut=False)
        c.give([result])
        seen.add(c.canonical())
    assert len(seen) == 3
