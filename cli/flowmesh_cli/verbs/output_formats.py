"""The formats in which ``fmesh outputs`` writes data sets; loads nothing, for the help."""

DOWNLOADED_FORMATS = ("jsonl", "csv", "parquet")
"""Of files, with ``--download``; the first is the default."""
SHOWN_FORMATS = ("table", "json", "csv")
"""Of rows on screen, with ``--head``; the first is the default."""
FORMATS_TEXT = "{}, {} or {} with --download, and {}, {} or {} with --head".format(
    *DOWNLOADED_FORMATS, *SHOWN_FORMATS
)
"""What each format needs."""
