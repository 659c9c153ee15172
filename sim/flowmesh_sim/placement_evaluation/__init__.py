"""The evaluation of placement and autoscaling: ``make placement-evidence``.

It compares the shipped scheduler with simple policies in hindsight, on loads that nobody tuned it
to. ``loads`` draws loads and seeds from the scheduler's last commit, ``reference_set`` lists the
policies, ``rental_bound`` and ``gap`` compute what no policy can beat and where the distance to it
goes, ``objective`` weighs dollars against seconds, ``measure`` simulates one cell, and
``verdicts``, ``tables`` and ``__main__`` write ``docs/evaluation-placement.md``.
"""
