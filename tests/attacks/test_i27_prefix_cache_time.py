"""Attacker: T2, a tenant who shares an engine with others.
Action: sends prompts that begin as another tenant's may, and compares times to the first token.
Must not happen: the engine uses a prefix that another tenant's prompt left in its cache. (``make
bench-side-channels`` measures the times.)
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowmesh_core.machine.dispatch import cache_salt_scope
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.prefix_salts import PrefixSalts
from flowmesh_core.sharing.scopes import plan_scopes

pytestmark = [pytest.mark.slow, pytest.mark.model]
PROGRAM = Path(__file__).parents[2] / "bench" / "prefix_observer.py"
PREFIX_TOKENS = 1024


def salt(namespace: str) -> str:
    scopes = plan_scopes([], namespace)
    return PrefixSalts(KeyRing.of(b"k" * 32))(cache_salt_scope(scopes, scopes.publish))


def test_a_prefix_of_another_tenant_is_not_used_and_an_own_one_is(
    tiny_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    job = {
        "model": str(model), "pairs": 3, "controls": 3, "words": 300, "memory_mib": 4096,
        "salts": [salt("team-a"), salt("team-b")], "answer": str(tmp_path / "answer.json"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "answer.json").read_text())
    assert [s["cached"] for s in found["others"] + found["fresh"]] == [0] * 6
    assert all(s["cached"] >= PREFIX_TOKENS for s in found["own"])
