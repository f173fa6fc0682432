"""DeepBench's operators in every backend."""
