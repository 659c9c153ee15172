"""Every workflow of the collection is a file: one that runs here, that validates, or that is
refused with the name of what is missing and what to do instead.
"""

from pathlib import Path

import pytest
from tests.collection.cases import WORKFLOWS
from tests.collection.cases_of_models import MODEL_CASES
from tests.collection.cases_of_training import TRAINING_CASES
from tests.collection.cases_without_models import CASES

from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import FilesError
from flowmesh_cli.verbs.validate import validate_files
from flowmesh_cli.workflows.selection import WorkflowSelection

RUNS = {*CASES, *MODEL_CASES, *TRAINING_CASES}
VALIDATES = {"data_retrieval", "data_retrieval_agent", "serve_vllm_qwen"}
SEARCH = (
    "'search' is not allowed; use any of 'calculator', 'sql', 'retrieve', 'python', 'http'; to"
    " search the web, call a search API with http.request in a step before this one"
)
MEDIA = "models here read and write text alone; add an engine of your own (docs/engines.md)"
CONTAINER = "no engine 'container.run': no step runs a container image; use code.python"
SHELL = "no engine 'ssh.shell': a step has no shell for a person"
DEVICES = "runs on one device; leave it out"
N8N = "an export of n8n, and FlowMesh imports none: write each node that works on rows as a step"
PICTURE = "content part image_url: models here read only text"
MISSING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("agent_query_search", "agent_paper_collector", "agent_static_list", "agent_dataset_batch"),
        (SEARCH,),
    ),
    "data_profiling": ("no engine 'sql.query': no engine queries a database; export its rows",),
    "data_retrieval_then_inference": (
        "cannot import from postgres://; use s3://, https:// or hf://",
    ),
    "diffusion_text2image": (f"no engine 'image.generate': {MEDIA}",),
    "diffusion_to_vlm": (f"no engine 'image.generate': {MEDIA}", PICTURE),
    "omni_text2audio": (f"no engine 'audio.generate': {MEDIA}",),
    "omni_text2general": (f"no engine 'omni.generate': {MEDIA}",),
    "omni_text2image": (f"no engine 'image.generate': {MEDIA}",),
    "omni_text2speech": (f"no engine 'speech.generate': {MEDIA}",),
    "omni_text2video": (f"no engine 'video.generate': {MEDIA}",),
    "omni_text2video_minimax_h3": (f"no engine 'video.generate': {MEDIA}",),
    "image_classification_vit": (f"no engine 'train.image-classification': {MEDIA}",),
    "vlm_llava": (PICTURE,),
    "dpo_training_llama_1b_multi_gpu": (f"train.dpo {DEVICES}",),
    "sft_llama_1b_multi_gpu": (f"train.sft {DEVICES}",),
    "sft_llama_3b": (
        "no parameter 'deepspeed'; training runs on one device; leave it out",
        f"train.sft {DEVICES}",
    ),
    "ppo_training_llama_1b": (
        "no parameter 'target_kl'; target_kl is not offered; kl_coef keeps the policy near the"
        " model",
    ),
    "ppo_training_ministral": (
        "no parameter 'early_stopping'; training does not stop early; set its length",
    ),
    "ppo_training_llama_1b_multi_gpu": (f"train.ppo {DEVICES}",),
    "lora_sft_llama_two_stage": (
        "train.sft has no input 'adapter'; training starts from a model: write the adapter into it"
        " with model.merge",
    ),
    "ssh_noninteractive": (CONTAINER,),
    "ssh_noninteractive_with_inputs": (CONTAINER,),
    "ssh_debug_shell": (SHELL,),
    "ssh_with_inputs": (SHELL,),
    "n8n/api_batch": (N8N,),
    "n8n/api_two_stage": (N8N,),
    "n8n/echo_local": (N8N,),
}
"""The problems of the files that are refused, all of them, without their places."""


def problems(file: Path) -> list[str]:
    """Returns the lines of `fmesh validate`."""
    try:
        validate_files(
            WorkflowSelection([file], None, None), place=Target(cluster=True), as_json=True
        )
    except FilesError as e:
        return str(e).splitlines()
    return []


def file_of(name: str) -> Path:
    """Returns the file of a workflow."""
    return WORKFLOWS / f"{name}{'.json' if '/' in name else '.yaml'}"


def test_every_file_stands_in_the_table_once() -> None:
    files = {
        str(p.relative_to(WORKFLOWS).with_suffix(""))
        for suffix in ("yaml", "json")
        for p in WORKFLOWS.rglob(f"*.{suffix}")
    }
    assert len(files) == 58 + 3  # the collection's files, and three exports of n8n
    assert RUNS | VALIDATES | MISSING.keys() == files
    assert len(RUNS) + len(VALIDATES) + len(MISSING) == len(files)


@pytest.mark.parametrize("name", sorted(RUNS | VALIDATES))
def test_a_file_that_runs_is_valid(name: str) -> None:
    assert problems(file_of(name)) == []


@pytest.mark.parametrize("name", sorted(MISSING))
def test_a_file_that_cannot_run_is_refused_with_what_is_missing_and_what_to_do(name: str) -> None:
    found = problems(file_of(name))
    assert len(found) == len(MISSING[name]), found
    for text in MISSING[name]:
        assert [line for line in found if text in line], (text, found)
