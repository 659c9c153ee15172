"""A file for each row, what ``fmesh outputs`` refuses, and names that a shell completes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.main import app
from flowmesh_cli.verbs.output_files import write_row_files, write_table
from flowmesh_cli.verbs.output_formats import FORMATS_TEXT
from flowmesh_cli.verbs.plot import points_of

ROWS = [{"id": "a", "text": "one", "tags": ["x"]}, {"id": "b", "text": "two", "tags": []}]


def test_text_is_written_as_it_is_and_other_values_as_json(tmp_path: Path) -> None:
    assert write_row_files(ROWS, tmp_path / "new", "{{ id }}/it.md", "text") == 2
    assert (tmp_path / "new" / "b" / "it.md").read_text() == "two"
    write_row_files(ROWS, tmp_path, "{{ row.id }}.json", "tags")
    assert (tmp_path / "a.json").read_text() == '["x"]'


@pytest.mark.parametrize(
    ("template", "column", "reason"),
    [
        ("same.md", "text", "two rows have the name 'same.md'"),
        ("./same.md", "text", "two rows have the name"),
        ("../{{ id }}", "text", "'../a' is not the name of a file in the folder"),
        ("/{{ id }}", "text", "'/a' is not the name of a file in the folder"),
        ("{{ '' }}", "text", "'' is not the name of a file in the folder"),
        ("{{ nosuch }}", "text", "'nosuch' is undefined"),
        ("{{ id", "text", "not a template"),
        ("{{ id }}", "txt", "no column 'txt'; did you mean 'text'?"),
    ],
)
def test_a_name_that_leaves_the_folder_or_is_not_new_is_refused(
    template: str, column: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(CliError) as caught:
        write_row_files(ROWS, tmp_path / "in", template, column)
    assert reason in str(caught.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--head 2 --format xml", "'xml' is not a format"),
        ("--format xml", FORMATS_TEXT),
        ("--format parquet", "'parquet' needs --download"),
        ("--format csv", "'csv' needs --download or --head"),
        ("--format table", "'table' needs --head, without --download"),
        ("--head 2 --format parquet", "'parquet' needs --download"),
        ("--head 2 --format jsonl", FORMATS_TEXT),
        ("--download d --format json", "'json' needs --head, without --download"),
        ("--columns text", "--columns has no effect without --head"),
        ("--columns text --download d", "--columns has no effect without --head"),
        ("--files x --column text", "--files has no effect without --download"),
        ("--files x --download d", "--files and --column need each other"),
    ],
)
def test_options_without_effect_are_refused(options: str, reason: str) -> None:
    done = CliRunner().invoke(app, ["outputs", *options.split()])
    assert done.exit_code == 2
    assert reason in done.stderr


def test_the_page_and_the_help_list_the_formats_with_what_each_needs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert FORMATS_TEXT in page.replace("`", "")
    shown = CliRunner().invoke(app, ["outputs", "--help"], terminal_width=78).stdout
    assert FORMATS_TEXT in " ".join(shown.split())


TABLE = pa.table(
    {
        "chat": pa.array(['[{"role":"user"}]', "2"], pa.json_()),
        "data": [b"\xff\x00", None],
        "flag": [True, False],
        "text": ["a,b", None],
        "v": [[0.5, 1.0], []],
    }
)


class TableRows:
    """Rows that are a table here; they end early where ``fails``."""

    def __init__(self, table: pa.Table, *, fails: bool = False) -> None:
        self._table, self._fails = table, fails

    @contextmanager
    def arrow_reader(self) -> Iterator[pa.RecordBatchReader]:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from self._table.to_batches()
            if self._fails:
                raise CliError("the content is incomplete", ExitCode.FAILED)

        yield pa.RecordBatchReader.from_batches(self._table.schema, batches())


def test_csv_has_values_of_every_type_as_text(tmp_path: Path) -> None:
    rows: Any = TableRows(TABLE)
    write_table(rows, tmp_path / "rows.csv", "csv")
    assert (tmp_path / "rows.csv").read_text() == (
        'chat,data,flag,text,v\n"[{""role"":""user""}]",/wA=,true,"a,b","[0.5,1.0]"\n2,,false,,[]\n'
    )


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_download_without_rows_has_the_columns(tmp_path: Path, format_: str) -> None:
    rows: Any = TableRows(TABLE.slice(0, 0))
    write_table(rows, tmp_path / "rows", format_)
    if format_ == "csv":
        assert (tmp_path / "rows").read_text() == "chat,data,flag,text,v\n"
    else:
        assert pq.read_table(tmp_path / "rows").schema.names == TABLE.schema.names


def test_parquet_has_the_types_of_the_data_set(tmp_path: Path) -> None:
    rows: Any = TableRows(TABLE)
    write_table(rows, tmp_path / "rows.parquet", "parquet")
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_download_that_ends_early_leaves_no_file(tmp_path: Path, format_: str) -> None:
    rows: Any = TableRows(TABLE, fails=True)
    with pytest.raises(CliError, match="incomplete"):
        write_table(rows, tmp_path / "rows", format_)
    assert list(tmp_path.iterdir()) == []


def test_points_are_the_rows_with_two_numbers() -> None:
    rows = [{"x": 0, "y": 1.5}, {"x": 1, "y": None}, {"x": True, "y": 1}, {"x": 2, "y": 1e999}]
    assert points_of(rows, "x", "y") == [(0.0, 1.5)]
    with pytest.raises(CliError, match="no row has a number in 'x'"):
        points_of(rows[1:], "x", "y")
    with pytest.raises(CliError, match="no column 'z'"):
        points_of(rows, "x", "z")


def test_a_shell_completes_engines_and_nothing_where_nothing_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        words |= {"_FMESH_COMPLETE": "complete_bash"}
        return CliRunner().invoke(app, [], env=words, prog_name="fmesh").stdout.strip()

    monkeypatch.chdir(tmp_path)
    assert completed("fmesh engines eval.exa") == "eval.exact-match"
    assert completed("fmesh status sh") == ""
