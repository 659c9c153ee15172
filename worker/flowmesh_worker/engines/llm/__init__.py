"""Engines that run a language model over rows: ``llm.generate`` and ``llm.embed``.

Nothing here imports torch, transformers or vLLM before ``load``.
"""
