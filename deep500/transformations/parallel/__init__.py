"""Parallel plans: one network divided among ranks, proven equal to the serial one."""
