"""Gradients of parallel programs by Enzyme: two proxies, serial, with OpenMP, MPI, both, and RAJA-style loops."""
