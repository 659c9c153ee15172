"""Every command and option explains itself in a line or two of plain English."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from flowmesh_cli.main import app


def commands(command: Any, name: str = "fmesh") -> Iterator[tuple[str, Any]]:
    """Yields a command and its subcommands, by their words."""
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_made_of_whole_sentences_without_semicolons(name: str) -> None:
    command = COMMANDS[name]
    texts = [command.help, *(option.help for option in command.params if option.name != "help")]
    for text in texts:
        assert text, name
        assert ";" not in text, text
        assert text[0].isupper(), text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_first_sentence_fits_into_the_list_of_commands(name: str) -> None:
    first = COMMANDS[name].help.partition("\n")[0]
    assert first.endswith("."), first
    assert len(first) <= 70, first


@pytest.mark.parametrize("group", [n for n, c in COMMANDS.items() if hasattr(c, "commands")])
def test_no_line_of_a_list_of_commands_is_cut_off_on_80_columns(group: str) -> None:
    words = [*group.split()[1:], "--help"]
    shown = CliRunner().invoke(app, words, terminal_width=78).stdout  # click leaves two free
    listed = shown.partition("Commands:")[2].splitlines()
    assert len(listed) > 1
    assert [line for line in listed if line.endswith("...")] == []


def test_the_options_that_choose_a_fabric_have_a_section_of_their_own() -> None:
    shown = CliRunner().invoke(app, ["outputs", "--help"]).stdout
    own, _, where = shown.partition("\nWhere:\n")
    chosen = ("--state-dir", "--cluster", "--context", "--kubeconfig", "--server", "--ca")
    chosen += ("--system-namespace", "--namespace", "--all-namespaces")
    assert [option for option in chosen if f" {option}" not in where] == []
    assert [option for option in chosen if f" {option}" in own] == []
    assert "--head" in own
    assert "--json" in own
    assert "--help" in own.partition("\nOptions:\n")[2]


def test_a_section_has_the_options_of_its_panel() -> None:
    shown = CliRunner().invoke(app, ["up", "--help"]).stdout
    assert "--store-max" in shown.partition("\nStore:\n")[2].partition("\nWhere:\n")[0]


def test_commands_of_groups_have_sections_too() -> None:
    assert "\nWhere:\n" in CliRunner().invoke(app, ["cache", "stats", "--help"]).stdout
