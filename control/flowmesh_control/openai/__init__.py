"""OpenAI's Batch API on runs: files, batches and their results."""
