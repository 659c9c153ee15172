"""Engines that train: TRL's trainers on a model that one host loads once.

``engine.py`` is the shell that all of them share; a trainer adds how rows become examples and which
trainer of TRL learns from them (``sft.py``, ``reward.py``, ``dpo.py``).
"""
