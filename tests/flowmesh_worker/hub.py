"""A stand-in of a Hugging Face hub: the routes that imports use, with real files.

As the real one it moves branches to new commits, sends large files from another host after a
redirect, small ones through a relative redirect, and shows gated repositories to tokens alone.
"""

import asyncio
import hashlib
import io
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web

TOKEN = "hf_of_the_test"
Rows = Sequence[Mapping[str, Any]]


def commit(letter: str) -> str:
    """A commit's name."""
    return letter * 40


def parquet(rows: Rows) -> bytes:
    """A Parquet file of these rows."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(r) for r in rows]), out)
    return out.getvalue()


def jsonl(rows: Rows) -> bytes:
    """A JSON Lines file of these rows."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def questions(name: str, count: int = 2) -> list[dict[str, str]]:
    """Rows that say which file they are of."""
    return [{"question": f"{name} {n}?", "answer": f"{name} {n}!"} for n in range(count)]


TRAIN, TEST = "main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet"
ABOUT = {"README.md": b"# Rows\n", ".gitattributes": b"*.parquet filter=lfs\n"}
GSM8K = {
    **ABOUT,
    TRAIN: parquet(questions("train")),
    TEST: parquet(questions("test")),
    "socratic/train-00000-of-00001.parquet": parquet(questions("socratic")),
}
REPOSITORIES: dict[str, dict[str, dict[str, bytes]]] = {
    "openai/gsm8k": {
        commit("a"): {**GSM8K, TRAIN: parquet(questions("older"))},
        commit("b"): GSM8K,
        commit("c"): {"default/train/0000.parquet": parquet(questions("converted"))},
    },
    "org/one": {
        commit("d"): {
            **ABOUT,
            "data.jsonl": jsonl(questions("one")),
            "dataset_infos.json": b"{}",
            ".cache/other.jsonl": b"{}",
        }
    },
    "org/parts": {
        commit("e"): {
            f"data/train-{n:05}-of-00003.parquet": parquet(questions(f"part {n}")) for n in range(3)
        }
    },
    "org/gap": {commit("f"): {"x-00000-of-00002.csv": b"a\n1\n"}}
    | {commit("9"): {f"x-0000{n}-of-00003.csv": b"a\n1\n" for n in (0, 2)}},
    "org/unlike": {
        commit("8"): {
            "x-00000-of-00002.parquet": parquet([{"a": 1}]),
            "x-00001-of-00002.parquet": parquet([{"b": "x"}]),
        }
    },
    "org/script": {commit("7"): {**ABOUT, "script.py": b"import datasets\n"}},
    "org/gated": {commit("6"): {"data.jsonl": jsonl(questions("gated"))}},
    "org/odd": {commit("5"): {"a b/rows+1@2.jsonl": jsonl(questions("odd"))}},
}
MANY = [f"main/train-{n:05}-of-00010.parquet" for n in range(10)]
REPOSITORIES["org/many"] = {
    commit("4"): {
        **ABOUT,
        **{file: parquet(questions(f"train {n}", 40)) for n, file in enumerate(MANY)},
        "main/validation.jsonl": jsonl(questions("validation", 5)),
        "main/test.csv": b"answer,question\ntest 0!,test 0?\n",
        "extra/rows.jsonl": jsonl(questions("extra", 3)),
    }
}
REPOSITORIES["org/named"] = {
    commit("3"): {
        "train.jsonl": jsonl(questions("train")),
        "val.jsonl": jsonl(questions("validation")),
        "my_test_part.jsonl": jsonl(questions("test")),
    }
}
REPOSITORIES["org/converted"] = {
    commit("2"): {
        f"{config}/{split}/0000.parquet": parquet(questions(f"{config} {split}"))
        for config in ("a", "b")
        for split in ("train", "test")
    }
}
MODEL = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "config.json": b"{}",
    "model.safetensors": b"\0" * 5000,
    "pytorch_model.bin": b"\0" * 7000,
}
REPOSITORIES["org/model"] = {commit("1"): MODEL}
CARDS: dict[str, dict[str, Any]] = {
    "openai/gsm8k": {
        "configs": [
            {
                "config_name": "main",
                "data_files": [
                    {"split": "train", "path": "main/train-*"},
                    {"split": "test", "path": "main/test-*"},
                ],
            },
            {
                "config_name": "socratic",
                "data_files": [{"split": "train", "path": "socratic/train-*"}],
            },
        ]
    },
    "org/many": {
        "configs": [
            {
                "config_name": "main",
                "default": True,
                "data_files": [
                    {"split": "train", "path": "main/train-*"},
                    {"split": "validation", "path": ["main/validation.jsonl"]},
                    {"split": "test", "path": "**/test.csv"},
                ],
            },
            {"config_name": "extra", "data_dir": "extra", "data_files": "*.jsonl"},
        ]
    },
}
"""What the hub parsed of the repositories' cards."""
BRANCHES: dict[str, dict[str, str]] = {
    "openai/gsm8k": {
        "main": commit("b"),
        "v1": commit("a"),
        "refs/convert/parquet": commit("c"),
    },
    "org/gap": {"main": commit("f"), "worse": commit("9")},
}


@dataclass
class Hub:
    """The stand-in while it runs.

    Attributes:
        url: its address.
        branches: repository to branch to commit; a test may move one.
        asked: method, host's part and path of every request, with what authorised it.
    """

    url: str = ""
    branches: dict[str, dict[str, str]] = field(
        default_factory=lambda: {name: dict(b) for name, b in BRANCHES.items()}
    )
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    _store_url: str = ""

    def commit_of(self, repository: str, revision: str) -> str:
        """The commit that a revision means; 404 where it means none."""
        commits = REPOSITORIES[repository]
        known = self.branches.get(repository, {"main": next(iter(commits), "")})
        found = known.get(revision, revision)
        if found not in commits:
            raise web.HTTPNotFound(headers={"X-Error-Code": "RevisionNotFound"})
        return found

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers as the hub."""
        raw = request.rel_url.raw_path
        authorised = request.headers.get("Authorization", "")
        self.asked.append(("hub", raw, authorised))
        match raw.strip("/").split("/"):
            case ["api", "models", org, name, "tree", revision, *_]:
                return self._tree(_found(org, name, authorised), unquote(revision))
            case ["api", "datasets" | "models", org, name, *more]:
                revision = unquote(more[1]) if more else "main"
                sizes = request.query.get("blobs") == "true"
                return self._info(_found(org, name, authorised), revision, sizes=sizes)
            case ["datasets", org, name, "resolve", revision, *file]:
                repository = _found(org, name, authorised)
                at = self.commit_of(repository, unquote(revision))
                return self._file(repository, at, unquote("/".join(file)))
            case [org, name, "resolve", revision, *file]:
                repository = _found(org, name, authorised)
                at = self.commit_of(repository, unquote(revision))
                return self._file(repository, at, unquote("/".join(file)))
            case ["cache", org, name, at, *file]:
                repository = f"{unquote(org)}/{unquote(name)}"
                body = REPOSITORIES[repository][at][unquote("/".join(file))]
                return web.Response(body=body, headers={"X-Repo-Commit": at, "ETag": _etag(body)})
        raise web.HTTPNotFound

    async def store(self, request: web.Request) -> web.StreamResponse:
        """Answers as the host that keeps large files."""
        self.asked.append(("store", request.path, request.headers.get("Authorization", "")))
        org, name, at, *file = request.path.strip("/").split("/")
        return web.Response(body=REPOSITORIES[f"{org}/{name}"][at]["/".join(file)])

    def _info(self, repository: str, revision: str, *, sizes: bool) -> web.Response:
        at = self.commit_of(repository, revision)
        held = REPOSITORIES[repository][at]
        files = [{"rfilename": f} | ({"size": len(c)} if sizes else {}) for f, c in held.items()]
        card = CARDS.get(repository)
        about = {"id": repository, "sha": at, "siblings": files}
        return web.json_response(about if card is None else {**about, "cardData": card})

    def _tree(self, repository: str, revision: str) -> web.Response:
        held = REPOSITORIES[repository][self.commit_of(repository, revision)]
        return web.json_response(
            [
                {"type": "file", "path": path, "size": len(content), "oid": _etag(content)[1:-1]}
                for path, content in held.items()
            ]
        )

    def _file(self, repository: str, at: str, file: str) -> web.Response:
        if file not in REPOSITORIES[repository][at]:
            raise web.HTTPNotFound(headers={"X-Error-Code": "EntryNotFound"})
        if file.endswith(".parquet"):
            raise web.HTTPFound(f"{self._store_url}/{repository}/{at}/{file}")
        raise web.HTTPTemporaryRedirect(f"/cache/{repository}/{at}/{file}")


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha1(content).hexdigest()}"'


def _found(org: str, name: str, authorised: str) -> str:
    repository = f"{unquote(org)}/{unquote(name)}"
    gated = repository == "org/gated" and authorised != f"Bearer {TOKEN}"
    if repository not in REPOSITORIES or gated:
        # The real one does not tell a stranger what there is.
        raise web.HTTPUnauthorized
    return repository


@asynccontextmanager
async def running() -> AsyncIterator[Hub]:
    """The stand-in on two free ports of 127.0.0.1: the hub, and its store of large files."""
    hub = Hub()
    runners = []
    for handle in (hub.handle, hub.store):
        app = web.Application()
        app.router.add_get("/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
    hub.url, hub._store_url = (f"http://127.0.0.1:{r.addresses[0][1]}" for r in runners)
    try:
        yield hub
    finally:
        for runner in runners:
            await runner.cleanup()


@contextmanager
def in_thread() -> Iterator[Hub]:
    """The stand-in, served by a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    served = running()
    try:
        yield asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
