"""What FlowMesh has no engine for, and what to do instead: for errors of the compiler."""

from collections.abc import Iterable

_PLUGIN = "add an engine of your own (docs/engines.md)"
_MEDIA = f"models here read and write text alone; {_PLUGIN}"
_BY_FAMILY = {
    **dict.fromkeys(("audio", "diffusion", "image", "omni", "speech", "video", "vision"), _MEDIA),
    **dict.fromkeys(
        ("container", "docker"),
        f"no step runs a container image; use code.python, or {_PLUGIN}",
    ),
    **dict.fromkeys(
        ("shell", "ssh"), "a step has no shell for a person; `fmesh logs` shows what it writes"
    ),
    **dict.fromkeys(
        ("mysql", "postgres", "sql"),
        "no engine queries a database; export its rows to a file for data.sql, or call its API"
        " with http.request",
    ),
    **dict.fromkeys(
        ("search", "web"), "no engine searches the web; call a search API with http.request"
    ),
    **dict.fromkeys(
        ("serve", "serving"),
        "a model that stays loaded is a FlowMeshService (docs/serving.md), not a step",
    ),
}
_BY_NAME = {
    "http.agent": "an agent's model runs on a worker (llm.agent); a model behind an API answers"
    " one chat a row (http.chat)",
    "llm.serve": _BY_FAMILY["serve"],
    "train.image-classification": _MEDIA,
}


def missing_engine_hint(name: str, known: Iterable[str]) -> str:
    """Returns what to do in place of an engine of another tool; empty where that is not known.

    Args:
        name: as a step has it.
        known: the engines that are installed; plugins may have some of a family.
    """
    family = name.partition(".")[0]
    if any(other.startswith(f"{family}.") for other in known):
        return _BY_NAME.get(name, "")
    return _BY_FAMILY.get(family, "")
