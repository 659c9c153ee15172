"""The engine ``retrieve.topk``."""
