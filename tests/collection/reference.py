"""What transformers alone gives for a text: the values that engines must give too."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Reference:
    """Greedy completions and vectors of models, from a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", folders: Mapping[str, Path]) -> None:
        self._process = process
        self._folders = folders
        self._answers: dict[str, Any] = {}

    def complete(
        self, prompt: str, tokens: int = 8, model: str = "base", **options: Any
    ) -> tuple[str, str]:
        """Returns the text, and `stop` or `length`."""
        text, ended = self._ask(model, prompt=prompt, tokens=tokens, options=options)
        return text, ended

    def vector(self, text: str, pooling: str) -> list[float]:
        """Returns the vector of a text, of length 1."""
        found: list[float] = self._ask("base", embed=text, pooling=pooling)
        return found

    def _ask(self, model: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({**request, "model": str(self._folders[model])})
        if line not in self._answers:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            self._answers[line] = json.loads(self._process.stdout.readline())
        return self._answers[line]


@contextmanager
def reference(folders: Mapping[str, Path], errors: Path) -> Iterator[Reference]:
    """Runs the process during a block.

    Args:
        folders: of the models, by name.
        errors: gets what the process writes to standard error.
    """
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("greedy.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as process,
    ):
        yield Reference(process, folders)
        process.communicate()


def chat(*messages: tuple[str, str]) -> str:
    """Returns a chat as the small model's template writes it."""
    return "".join(f"<|{role}|>{content}\n" for role, content in messages) + "<|assistant|>"
