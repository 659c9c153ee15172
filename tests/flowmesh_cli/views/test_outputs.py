"""Outputs in a few words."""

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.views.runs import describe_output

RUN = RunStatus("u1", "n", "t", "Succeeded", 1.0)


def test_an_output_of_several_data_sets_has_their_rows_and_bytes_together() -> None:
    parts = [{"kind": "dataset", "rows": n, "bytes": 1024 * n} for n in (1, 2)]
    assert describe_output({"kind": "dataset", "parts": parts}, RUN) == "dataset, 3 rows, 3.0 KiB"


def test_an_output_of_one_data_set_has_its_own() -> None:
    output = {"kind": "dataset", "rows": 1, "bytes": 512}
    assert describe_output(output, RUN) == "dataset, 1 row, 512 B"


def test_several_models_have_a_size_and_no_rows() -> None:
    parts = [{"kind": "model", "bytes": 1024}] * 2
    assert describe_output({"kind": "model", "parts": parts}, RUN) == "model, 2.0 KiB"
