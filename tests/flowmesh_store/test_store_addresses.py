"""What opens which store, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.blob_views import blobs_of

from flowmesh_core.errors import StoreError
from flowmesh_store.durability import Durability
from flowmesh_store.hashing import digest_of
from flowmesh_store.s3 import parse_location
from flowmesh_store.store import open_store


async def test_a_path_a_string_and_a_file_address_open_the_same_directory(tmp_path: Path) -> None:
    root = tmp_path / "a store"
    await blobs_of(open_store(root)).put(digest_of(b"x"), b"x")
    for address in (str(root), root.as_uri(), f"file://localhost{root.as_uri()[7:]}"):
        assert await blobs_of(open_store(address)).get(digest_of(b"x")) == b"x"


async def test_each_memory_store_is_a_new_one() -> None:
    await blobs_of(open_store("memory:")).put(digest_of(b"x"), b"x")
    assert await blobs_of(open_store("memory:")).missing([digest_of(b"x")]) == {digest_of(b"x")}


@pytest.mark.parametrize(
    "address",
    ["gs://bucket", "file://elsewhere/path", "file:", "http://host/path", "s3:", "s3:///x"],
)
def test_an_address_of_no_store_is_refused_with_the_forms_that_exist(address: str) -> None:
    with pytest.raises(StoreError, match="s3://bucket/prefix"):
        open_store(address)


def test_an_s3_address_gives_bucket_prefix_endpoint_and_region() -> None:
    location = parse_location("s3://b/p/q/?endpoint=http://127.0.0.1:7070/&region=eu-west-3")
    assert (location.bucket, location.prefix) == ("b", "p/q")
    assert (location.endpoint, location.region) == ("http://127.0.0.1:7070", "eu-west-3")
    assert parse_location(location.url) == location
    assert location.key("cas/x") == "p/q/cas/x"
    trusting = parse_location("s3://b?endpoint=https://host&ca=/etc/ca.crt")
    assert (trusting.ca, parse_location(trusting.url)) == ("/etc/ca.crt", trusting)


@pytest.mark.parametrize(
    "address", ["s3://b/p?endpont=http://x", "s3://key:secret@b/p", "s3://b/a//b"]
)
def test_a_mistyped_s3_address_is_refused_without_repeating_a_secret(address: str) -> None:
    with pytest.raises(StoreError, match="credentials come from the environment") as caught:
        parse_location(address)
    assert "secret" not in str(caught.value)


def test_a_directory_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file"):
        open_store(tmp_path / "file" / "store")


def test_records_that_protect_verdicts_are_synced_to_disk_and_results_are_not() -> None:
    keys = ["runs/u/spec", "epochs/1", "actions/s/a", "lineage/by-output/x"]
    waits = {d: [d.syncs_record(k) for k in keys] for d in Durability}
    assert waits[Durability.PROCESS] == [False] * 4
    assert waits[Durability.VERDICTS] == [True, True, False, False]
    assert waits[Durability.POWER] == [True] * 4


async def test_a_fully_durable_store_works_like_any_other(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", durability=Durability.POWER)
    with blobs_of(store).spool() as writer:
        writer.write(b"spooled")
        spooled = writer.finish()
    await blobs_of(store).put_spooled(spooled)
    await blobs_of(store).put(digest_of(b"x"), b"x")
    etag = await store.records.write("actions/s/a", b"1")
    await store.records.write("actions/s/a", b"2", if_match=etag)
    assert await blobs_of(store).get(spooled.digest) == b"spooled"


def test_opening_a_directory_loads_no_s3_client() -> None:
    program = (
        "import sys, flowmesh_store.store as s; s.open_store('memory:');"
        "sys.exit('boto3' in sys.modules or 'obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
