"""The example of a plugin, as ``docs/engines.md`` shows it, without being installed.

Its package and the metadata that an installer would write lie in a folder on the import path of
``fmesh`` and of the worker that it starts.
"""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.flowmesh_cli.calling import COMMAND, WITHIN_S, environment, fmesh

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Returns a folder with an installed plugin."""
    folder = tmp_path / "site"
    shutil.copytree(EXAMPLE / "word_count", folder / "word_count")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"word_count-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
        for group, points in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n\n".join(sections) + "\n")
    return folder


def with_plugin(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    base = environment()
    path = ":".join(filter(None, [str(site), base.get("PYTHONPATH", "")]))
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=site.parent,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        env={**base, "PYTHONPATH": path},
        check=False,
    )


def test_a_plugins_engine_is_listed_typed_run_and_shared_like_any_other(site: Path):
    shown = with_plugin(site, "engines", "text.word-count")
    assert "Counts the words of a column." in shown.stdout, shown.stderr
    done = with_plugin(site, "run", EXAMPLE / "workflow.yaml", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["runs"][0]
    assert run["outputs"]["total"]["value"] == {"words": 10}
    assert with_plugin(site, "outputs", "--download", site.parent / "out").returncode == 0
    rows = (site.parent / "out" / "counted.jsonl").read_text().splitlines()
    assert [json.loads(row)["words"] for row in rows] == [6, 4]
    again = with_plugin(site, "run", EXAMPLE / "workflow.yaml", "--json")
    run = json.loads(again.stdout)["runs"][0]
    assert (run["executed"], run["hits"]) == (0, 1)


def test_errors_of_a_plugin_engine_are_reported_like_those_of_built_in_engines(site: Path):
    text = (EXAMPLE / "workflow.yaml").read_text()
    wrong = site.parent / "wrong.yaml"
    wrong.write_text(text.replace("column: line", "column: lime"))
    told = with_plugin(site, "validate", wrong)
    assert told.returncode == ExitCode.USAGE
    assert "did you mean 'line'" in told.stderr
    wrong.write_text(
        text.replace("{line: to be or not to be}, {line: that is the question}", "{line: 7}")
    )
    failed = with_plugin(site, "run", wrong)
    assert failed.returncode == ExitCode.FAILED
    assert "column 'line' holds no text" in failed.stderr


def test_without_the_plugin_its_engine_is_unknown(tmp_path: Path):
    told = fmesh("validate", EXAMPLE / "workflow.yaml", cwd=tmp_path)
    assert told.returncode == ExitCode.USAGE
    assert "no engine 'text.word-count'" in told.stderr
