"""The paper's evaluation, repeated in virtual time with the shipped scheduler: ``make paper``.

``plan.yaml`` lists the simulations, ``plan`` reads it, ``measure`` simulates one cell with one
seed, ``bound`` computes lower bounds, ``campaign`` stores results, and ``tables``, ``plots``,
``goals`` and ``page`` write ``docs/evaluation.md``.
"""
