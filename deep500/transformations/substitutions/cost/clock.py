"""The clock of budgets: CPU time, which does not go faster or slower with what else a machine does."""

from __future__ import annotations

import os
import time


def cpu_seconds() -> float:
    """CPU seconds of this process, on all its cores together, and of compilers that it started and that have ended.

    Example:
        >>> begin = cpu_seconds()
        >>> time.sleep(0.2)
        >>> cpu_seconds() - begin < 0.1
        True
    """
    children = os.times()
    return time.process_time() + children.children_user + children.children_system
