"""Engines that train models with TRL's trainers: ``train.*``.

``engine.py`` has the base class; each engine adds how rows become examples and which trainer of TRL
learns from them (``sft.py``, ``reward.py``, ``dpo.py``, ``grpo.py``, ``ppo.py``).
"""
