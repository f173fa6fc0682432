"""What recomputation costs and saves: four networks profiled, planned for budgets of memory, run, compared."""
