"""Which inputs of a workflow are files or folders of the user's machine."""

_LOCAL = ("./", "../", "file:", "/", "~")


def is_local(text: str) -> bool:
    """Whether an input names a file or folder of the user's machine, which a client uploads."""
    return text.startswith(_LOCAL)
