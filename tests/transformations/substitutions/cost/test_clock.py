"""The clock of budgets."""

from __future__ import annotations

import subprocess
import sys
import time

from deep500.transformations.substitutions.cost.clock import cpu_seconds


def test_waiting_costs_nothing_and_processes_that_were_started_count() -> None:
    begin = cpu_seconds()
    time.sleep(0.3)
    assert cpu_seconds() - begin < 0.2
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
    assert cpu_seconds() - begin >= 0.35
