"""The batch sizes that an engine on vLLM captures as CUDA graphs.

vLLM captures a graph for each of some 50 sizes, in steps of 8, and another for decoding alone up to
``max_num_seqs``: 86 graphs, a quarter of a second each in the logs of an 8B model (vLLM pull
request 11005; RFC 20098 says that most are never used). A batch is padded to the next larger size.
Decoding reads all weights whatever the batch, so padding by half costs little, and a third of the
sizes are enough.
"""

_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
_LARGEST = 512
"""vLLM's own limit; larger batches compute for longer than their kernels take to launch."""


def graph_sizes(sequences: int, batched_tokens: int) -> list[int]:
    """Returns the numbers of tokens that one graph each is captured for, ascending.

    Args:
        sequences: decoded at once at most; steps with a few prompt tokens are larger.
        batched_tokens: of one step at most.
    """
    largest = min(2 * sequences, batched_tokens, _LARGEST)
    return [*(size for size in _SIZES if size < largest), largest]
