"""Garbage collection is tuned once."""

import gc

from flowmesh_control.loop.gc_tuning import YOUNG, tune_gc


def test_the_garbage_collector_is_tuned_once_and_stays_enabled() -> None:
    before = gc.get_threshold()
    try:
        tune_gc()
        tune_gc()
        assert gc.get_threshold()[0] == YOUNG
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
