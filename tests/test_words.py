"""The check of names and docstrings finds what it should; its exceptions only become fewer."""

import ast
from pathlib import Path

import pytest
from hack import check_words


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("taken_up", {"taken", "up"}),
        ("HeldOpen", {"held", "open"}),
        ("TTLCache2", {"ttl", "cache", "2"}),
        ("_AGAIN_S", {"again", "s"}),
    ],
)
def test_a_name_is_split_into_its_words(name: str, found: set[str]) -> None:
    assert check_words.words(name) == found


def test_classes_functions_and_constants_are_checked() -> None:
    tree = ast.parse("AGAIN_S = 1\nclass Held:\n    def told(self): ...\nvalue: int = 2\n")
    assert [name for name, _ in check_words.definitions(tree)] == ["Held", "told", "AGAIN_S"]


def test_a_new_word_is_an_error_and_so_is_an_unneeded_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "core" / "flowmesh_core"
    package.mkdir(parents=True)
    (package / "parts.py").write_text(
        '"""Makes parts."""\n\n\ndef told() -> None:\n    """Runs."""\n'
    )
    allowed = tmp_path / "allowed.txt"
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    monkeypatch.setattr(check_words, "ALLOWED", allowed)
    assert check_words.main([]) == 1
    assert "core/flowmesh_core/parts.py:4: 'told' has the word 'told'" in capsys.readouterr().err
    assert check_words.main(["--write"]) == 0
    assert check_words.main([]) == 0
    (package / "parts.py").write_text('"""Makes parts."""\n')
    assert check_words.main([]) == 1
    assert "is not needed" in capsys.readouterr().err
