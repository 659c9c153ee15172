"""``model.import`` from a bucket of a real S3 server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "flowmesh_store"))

import versitygw

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.models.importing import ModelImport
from flowmesh_worker.secret_values import SecretValues

pytestmark = pytest.mark.slow

SECRETS = {
    "AWS_ACCESS_KEY_ID": versitygw.ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": versitygw.SECRET_KEY,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.S3Server]:
    program = versitygw.binary()
    if program is None:
        pytest.fail(
            "versitygw is missing: run `make bin/versitygw`, or name one in FLOWMESH_VERSITYGW"
        )
    with versitygw.running(program, tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_credentials_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("FLOWMESH_IMPORT_ALLOW", "127.0.0.1/32")


def model(server: versitygw.S3Server, name: str, *files: str) -> str:
    folder = server.directory / versitygw.BUCKET / name
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        data = f'{{"file": "{file}"}}'.encode()
        safe = file.endswith(".safetensors")
        (folder / file).write_bytes((2).to_bytes(8, "little") + b"{}" if safe else data)
    return server.url(name)


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*.*")}


def work(uri: str, folder: Path, secrets: dict[str, str]) -> Work:
    return Work("a", "a", {"uri": uri}, {}, {}, folder, secrets=SecretValues.for_any_host(secrets))


async def test_a_model_is_imported_completely_and_without_unrelated_files(
    server: versitygw.S3Server, tmp_path: Path
) -> None:
    files = ("config.json", "tokenizer.json", "deep/one.json", "model.safetensors")
    uri = model(server, "good", *files, "train.py", "pytorch_model.bin")
    await ModelImport().run(work(uri, tmp_path, SECRETS), lambda *_: None)
    assert names(tmp_path / "model") == set(files)
    assert (tmp_path / "model" / "deep" / "one.json").read_text() == '{"file": "deep/one.json"}'


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("pickled", ("config.json", "pytorch_model.bin"), "pickled weights only"),
        ("empty", ("notes.md",), "no *.safetensors weights"),
        ("headless", ("model.safetensors",), "config.json and tokenizer.json is missing"),
    ],
)
async def test_an_invalid_model_is_bad_input(
    server: versitygw.S3Server, tmp_path: Path, name: str, files: tuple[str, ...], says: str
) -> None:
    uri = model(server, name, *files)
    with pytest.raises(AttemptError) as caught:
        await ModelImport().run(work(uri, tmp_path, SECRETS), lambda *_: None)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    assert says in str(caught.value)
    assert not (tmp_path / "model").exists()


async def test_missing_credentials_are_reported_with_how_to_provide_them(
    server: versitygw.S3Server, tmp_path: Path
) -> None:
    with pytest.raises(AttemptError, match="no AWS credentials were found"):
        await ModelImport().run(work(server.url("good"), tmp_path, {}), lambda *_: None)
