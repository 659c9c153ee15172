"""Guards of the repository's layout."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_operator_has_no_init_because_it_would_shadow_the_standard_library() -> None:
    assert (ROOT / "operator").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()
