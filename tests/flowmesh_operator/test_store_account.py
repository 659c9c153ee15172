"""A process ends when the Secret that its environment has the values of is another one."""

import asyncio
import shutil
from pathlib import Path

import pytest

from flowmesh_operator.access.store_account import account_changed

NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def mount(folder: Path, *values: str) -> None:
    """As the kubelet does: files are links to links, and a folder is replaced as a whole."""
    data, link = folder / f"..{'-'.join(values)}", folder / "..data"
    data.mkdir(parents=True)
    for name, value in zip(NAMES, values, strict=True):
        (data / name).write_text(value)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(f"..data/{name}")
    link.unlink(missing_ok=True)
    link.symlink_to(data.name)


def following(folder: Path | None, *values: str) -> "asyncio.Task[None]":
    environment = dict(zip(NAMES, values, strict=True))
    return asyncio.create_task(account_changed(folder, environment, look_every_s=0.001))


async def passed(task: "asyncio.Task[None]") -> bool:
    """Whether it has ended after many looks."""
    done, _ = await asyncio.wait([task], timeout=0.05)
    return bool(done)


async def test_it_ends_when_the_account_is_replaced(tmp_path: Path) -> None:
    mount(tmp_path, "a", "one")
    task = following(tmp_path, "a", "one")
    assert not await passed(task)
    mount(tmp_path, "a", "two")
    await asyncio.wait_for(task, 180)


async def test_files_that_are_older_than_the_environment_end_nothing(tmp_path: Path) -> None:
    mount(tmp_path, "a", "one")
    task = following(tmp_path, "a", "two")
    assert not await passed(task)
    mount(tmp_path, "a", "two")
    assert not await passed(task)
    task.cancel()


@pytest.mark.parametrize("folder", ["absent", ""])
async def test_without_a_secret_nothing_is_followed(tmp_path: Path, folder: str) -> None:
    task = following(tmp_path / folder if folder else None, "a", "one")
    assert not await passed(task)
    task.cancel()


async def test_a_secret_that_was_deleted_ends_nothing_until_there_is_another(
    tmp_path: Path,
) -> None:
    mount(tmp_path, "a", "one")
    task = following(tmp_path, "a", "one")
    shutil.rmtree(tmp_path)
    assert not await passed(task)
    mount(tmp_path, "b", "three")
    await asyncio.wait_for(task, 180)
