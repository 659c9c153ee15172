"""``fmesh serve MODEL --adapter NAME=PATH_OR_OUTPUT``: what is applied, and what is refused."""

from pathlib import Path

import pytest

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError
from flowmesh_cli.local.router import Endpoint
from flowmesh_cli.verbs.call import request_of
from flowmesh_cli.verbs.service_adapters import OPTION
from flowmesh_cli.verbs.service_document import refused_model
from flowmesh_cli.verbs.service_offers import ServeOptions, ServiceOffer, offers_of
from flowmesh_core.errors import SpecError

MODEL = "smollm2-135m-instruct"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an adapter, which is the current one."""
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "adapter_config.json").write_text("{}")
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offer_of(*adapters: str, models: tuple[str, ...] = (MODEL,)) -> ServiceOffer:
    return offers_of(ServeOptions(models, adapters=adapters))[0]


def test_folders_are_uploaded_and_outputs_are_named(folder: Path) -> None:
    offer = offer_of("german=./german", "french = tune/adapter")
    spec = offer.document["spec"]
    assert spec["components"]["llm"]["adapters"] == {
        "german": "inputs.adapter-german",
        "french": "inputs.adapter-french",
    }
    assert spec["inputs"]["adapter-german"] == {"adapter": "./german"}
    assert spec["inputs"]["adapter-french"] == {"output": "tune/adapter"}
    assert offer.entry.adapters == ("german", "french")
    (upload,) = offer.uploads
    assert (upload.name, upload.kind, upload.path) == (
        "adapter-german",
        "adapter",
        folder / "german",
    )


@pytest.mark.parametrize(
    ("adapters", "models", "text"),
    [
        (["german"], [MODEL], "expected NAME=PATH_OR_OUTPUT"),
        (["=./german"], [MODEL], "expected NAME=PATH_OR_OUTPUT"),
        (["a=./german", "a=./german"], [MODEL], "given twice"),
        (["a=./nowhere"], [MODEL], "has no adapter_config.json"),
        (["a=./model"], [MODEL], "has no adapter_config.json"),
        (["a=german"], [MODEL], "is read as WORKFLOW/OUTPUT"),
        (["a=tune"], [MODEL], "expected WORKFLOW/OUTPUT"),
        (["A b=./german"], [MODEL], "expected a name of letters"),
        (["a=./german"], [MODEL, "hf://org/other"], "with one model only"),
        (["a=./german"], ["ask.yaml"], "names its adapters itself"),
        ([f"a{n}=./german" for n in range(9)], [MODEL], "8"),
    ],
)
def test_what_is_no_adapter_is_refused_before_anything_starts(
    adapters: list[str], models: list[str], text: str
) -> None:
    with pytest.raises(CliError, match=text) as refused:
        offer_of(*adapters, models=tuple(models))
    assert refused.value.where == OPTION


def test_a_refusal_of_the_fabric_names_the_option_and_what_to_write() -> None:
    offer = offer_of("x=nix/adapter")
    assert offer.model == MODEL
    message = "there is no run 'nix' in namespace default"
    problem = Problem("spec.inputs.adapter-x.output", message)
    error = refused_model(offer.model, SpecError([problem]))
    assert (error.where, error.message) == (OPTION, message)
    assert "WORKFLOW/OUTPUT of a run that has succeeded" in error.remedy


def test_embeddings_have_no_adapters() -> None:
    with pytest.raises(CliError, match="cannot load adapters"):
        offers_of(ServeOptions((MODEL,), embeddings=True, adapters=("a=./german",)))


def test_a_call_finds_the_model_of_an_adapter() -> None:
    found = Endpoint("http://h/v1", {"m": "token"}, {})
    request = request_of(found, "m:german", "Hi", {})
    assert (request.token, request.body["model"]) == ("token", "m:german")
