"""Processes that a request passes collect garbage rarely."""

import gc
import subprocess
import sys

from flowmesh_core.gc_of_servers import YOUNG

CODE = """
import gc
from flowmesh_core.gc_of_servers import collect_rarely
collect_rarely()
print(gc.get_threshold()[0], gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_the_collector_stays_enabled_and_scans_no_imported_object() -> None:
    before = gc.get_threshold()
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(YOUNG), "True", "True"]
    assert gc.get_threshold() == before
