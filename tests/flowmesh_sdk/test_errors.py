"""Every error of the client is a ``FlowMeshError`` with a remedy, and the builtin error too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flowmesh_sdk as fm
from flowmesh_api.v1.charges import ChargePage
from flowmesh_sdk.bill import NamespaceBill
from flowmesh_sdk.http.client import ApiConnection
from flowmesh_sdk.outputs import NamedOutputs


def client() -> fm.Client:
    return fm.Client(ApiConnection.at("http://127.0.0.1:1", "token"))


def unreadable(folder: Path) -> fm.Workflow:
    return fm.load(folder)


def upload(folder: Path) -> Any:
    return client().upload(folder / "rows.jsonl")


def download(folder: Path) -> Any:
    (folder / "file").write_text("")
    return fm.ModelFolder(ApiConnection.at("", ""), "", kind="model").download(folder / "file")


@pytest.mark.parametrize(
    ("call", "builtin", "where"),
    [
        (lambda folder: fm.load(folder / "nosuch.yaml"), FileNotFoundError, "nosuch.yaml"),
        (unreadable, OSError, "test_an_error"),
        (upload, FileNotFoundError, "rows.jsonl"),
        (download, OSError, "file"),
        (lambda _: NamedOutputs(answers=None, scores=None)["answer"], KeyError, "result()"),
        (lambda _: NamespaceBill(ChargePage([]), by="month"), ValueError, "by"),  # type: ignore[arg-type]
    ],
    ids=["load", "folder", "upload", "download", "output", "bill"],
)
def test_an_error_is_of_both_kinds_and_says_where_why_and_what_to_do(
    tmp_path: Path, call: Callable[[Path], Any], builtin: type[Exception], where: str
) -> None:
    with pytest.raises(fm.FlowMeshError) as caught:
        call(tmp_path)
    error = caught.value
    assert isinstance(error, builtin)
    assert where in error.where
    assert error.message
    assert error.remedy
    assert str(error) == f"{error.where}: {error.message}\n  {error.remedy}"


def test_a_missing_output_names_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="there is no output 'answer'; it has answers, scores"):
        NamedOutputs(answers=None, scores=None)["answer"]


def test_a_file_that_is_not_text_is_an_invalid_workflow(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(fm.InvalidWorkflowError, match="is not UTF-8"):
        fm.load(tmp_path / "flow.yaml")
