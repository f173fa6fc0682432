"""Kernels of the recipe ``enzyme_microbenchmarks``: C++ sources, problems, closed forms, and how they are run."""
