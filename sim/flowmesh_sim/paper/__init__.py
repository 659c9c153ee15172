"""The paper's evaluation, re-run in virtual time with the shipped scheduler: ``make paper``.

``plan.yaml`` says what is simulated, ``plan`` reads it, ``measuring`` simulates one cell at one
seed, ``bound`` relaxes, ``campaign`` keeps what was simulated already, and ``tables``, ``figures``,
``goals`` and ``page`` say it in ``docs/evaluation.md``.
"""
