"""Engines that run a language model over rows: ``llm.generate``, ``llm.embed``, ``llm.score``.

Nothing here imports torch, transformers or vLLM before ``load``.
"""
