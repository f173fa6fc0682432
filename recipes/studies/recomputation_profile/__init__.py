"""Cost and gain of recomputation: four networks profiled, planned for budgets of memory, run, compared."""
