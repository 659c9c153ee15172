"""A bucket made ready on a real server with accounts: only its owner reaches it."""

import json
import os
from collections.abc import Iterator

import boto3
import pytest
import versitygw
from botocore.exceptions import ClientError

from flowmesh_core.errors import StoreError, StoreUnavailableError
from flowmesh_store.s3.prepare import main, prepare

pytestmark = pytest.mark.slow

OTHER, OTHER_SECRET = "flowmesh-worker", "a-workers-secret"
POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": [OTHER]},
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": ["arn:aws:s3:::fabric/fabric/cas/*"],
        }
    ],
}
"""What earlier releases gave the account of all workers."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.S3Server]:
    program = versitygw.binary()
    assert program is not None, "versitygw is missing: run `make bin/versitygw`"
    folder = tmp_path_factory.mktemp("accounts")
    accounts = folder / "iam"
    accounts.mkdir()
    account = {"access": OTHER, "secret": OTHER_SECRET, "role": "user"}
    (accounts / "users.json").write_text(json.dumps({"accessAccounts": {OTHER: account}}))
    before = dict(os.environ)
    versitygw.set_credentials(os.environ)
    with versitygw.running(program, folder, "--iam-dir", str(accounts), bucket=False) as running:
        yield running
    os.environ.clear()
    os.environ.update(before)


def test_only_the_owner_reaches_it_also_after_a_release_that_let_workers_in(
    server: versitygw.S3Server,
) -> None:
    prepare(server.url("fabric"))
    owner = client(server, versitygw.ACCESS_KEY, versitygw.SECRET_KEY)
    owner.put_bucket_policy(Bucket=versitygw.BUCKET, Policy=json.dumps(POLICY))
    key = "fabric/cas/ns-team-a/00/x"
    owner.put_object(Bucket=versitygw.BUCKET, Key=key, Body=b"x")
    other = client(server, OTHER, OTHER_SECRET)
    assert other.get_object(Bucket=versitygw.BUCKET, Key=key)["Body"].read() == b"x"
    for _ in range(2):  # as every start of the operator does
        prepare(server.url("fabric"))
    for call in (
        lambda: other.get_object(Bucket=versitygw.BUCKET, Key=key),
        lambda: other.put_object(Bucket=versitygw.BUCKET, Key=key, Body=b"mine"),
        lambda: other.delete_object(Bucket=versitygw.BUCKET, Key=key),
        lambda: other.list_objects_v2(Bucket=versitygw.BUCKET),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()
    assert owner.get_object(Bucket=versitygw.BUCKET, Key=key)["Body"].read() == b"x"


def test_preparing_a_bucket_without_the_owners_credentials_is_refused(
    server: versitygw.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(server.url("fabric"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OTHER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OTHER_SECRET)
    with pytest.raises(StoreError, match="credentials of the bucket's owner"):
        prepare(server.url("fabric"))


def test_a_server_that_never_answers_is_named(
    server: versitygw.S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "s3://fabric/x?endpoint=http://127.0.0.1:9&region=us-east-1"
    with pytest.raises(StoreUnavailableError, match="did not answer within 0 s"):
        prepare(url, within_s=0)
    assert main([url, "--within", "0"]) == 1
    assert "look at the server's pod" in capsys.readouterr().err


def client(server: versitygw.S3Server, access: str, secret: str):  # type: ignore[no-untyped-def]
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )
