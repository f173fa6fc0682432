"""Enzyme's gradients against gradients by hand and PyTorch, and on threads: ``python -m tests.benchmarks.enzyme``.

``--part gradients`` (one thread, float32): the shipped operators' gradients against those written by hand, same
compiler and flags, and against PyTorch eager; and the time to build an operator. ``--part openmp``: what a second
thread gains. Compared functions take turns in random order; gradients are compared before they are timed. Without
``--part`` both run, each in a process of its own.
"""

FIGURES = {
    "gradients: over gradients by hand, geometric mean": "at most 1.10, with fast_math and without",
    "gradients: forward and backward over PyTorch eager, 1e6 elements": "at most 0.6",
    "gradients: attention and convolution at sizes that models have, over PyTorch eager": "at most 1.5",
    "gradients: building one operator, compiler's cache warm": "at most 3 s",
    "openmp: a map and a sum, primal and gradient, 1 thread over 2": "no bar",
}
HAND, EAGER, SIZES, BUILD, OPENMP = FIGURES
