"""The limits of the settings of vLLM: of ``spec.llm`` of a pool, and of what a worker reads.

The pool's model and the worker's settings both have them, since on a laptop there is no pool.
"""

SEQUENCES_MAX = 8192
TOKENS_MAX = 1_048_576
GPU_SHARE_MIN, GPU_SHARE_MAX = 0.1, 0.99
BATCH_RULE = "maxNumBatchedTokens must not be less than maxNumSeqs: each sequence needs a token"


def breaks_batch_rule(tokens: int | None, sequences: int | None) -> bool:
    """Whether an engine would have more sequences than one of its steps has tokens."""
    return tokens is not None and sequences is not None and tokens < sequences
