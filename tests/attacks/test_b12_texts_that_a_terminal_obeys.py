"""Attacker: T1 and T5, a tenant whose runs others list, and content that a model wrote.
Action: writes a terminal's control characters into messages, logs, rows and errors.
Must not happen: the terminal of an administrator, who reads them, obeys.
"""

import pytest

from flowmesh_cli.errors import show
from flowmesh_cli.printable import printable
from flowmesh_cli.terminal import Terminal
from flowmesh_core.errors import FlowMeshError

HOSTILE = {
    "title": "\x1b]0;root\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "screen": "\x1b[2J\x1b[1;1H",
    "line": "\x1b[1A\x1b[2K",
    "carriage return": "failed\rSucceeded",
    "backspace": "no\b\bok",
    "eight bits": "\x9b2J\x9d0;root\x9c",
    "direction": "\u202egnp.exe\u2066",
    "null": "a\x00b\x7f",
}
ALLOWED = "Grüße, 你好 🎉\ttabs\nand lines, \x1b[36mcolours\x1b[0m"


def obeyed(written: str) -> set[str]:
    control = {*map(chr, (*range(0x20), *range(0x7F, 0xA0))), *"\u202e\u2066"} - {*"\n"}
    return control.intersection(written)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_command_writes_a_control_character_of_others(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(as_json=False)
    terminal.text(text)
    terminal.piece(text)
    terminal.note(text)
    terminal.table(["message"], [[text]])
    show(FlowMeshError(text, where=text, remedy=text))
    written = capsys.readouterr()
    assert not obeyed(written.out + written.err)
    assert printable(text) in written.out


def test_other_texts_stay_as_they_are() -> None:
    assert printable(ALLOWED) == ALLOWED
