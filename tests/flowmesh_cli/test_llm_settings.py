"""`FLOWMESH_LLM`: a command that starts workers refuses what they would refuse."""

import pytest

from flowmesh_cli.local.llm_settings import check_llm_settings
from flowmesh_core.errors import FlowMeshError


def test_settings_that_workers_would_refuse_are_refused_before_a_fabric_starts() -> None:
    check_llm_settings({})
    check_llm_settings({"FLOWMESH_LLM": '{"maxNumSeqs": 32}'})
    with pytest.raises(FlowMeshError) as refused:
        check_llm_settings({"FLOWMESH_LLM": '{"maxNumSeqs": 32000}'})
    assert refused.value.where == "FLOWMESH_LLM"
    assert refused.value.message == "Expected `int` <= 8192 - at `$.maxNumSeqs`"
    assert refused.value.remedy.startswith("correct it or remove it")
