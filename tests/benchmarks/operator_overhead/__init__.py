"""What a call of a custom operator costs: ``python -m tests.benchmarks.operator_overhead [--backend pytorch]``.

``pytorch``: a C++ class through ``custom_op`` against the forms that PyTorch's tutorials show, pybind11 and
TORCH_LIBRARY (needs g++ and ninja; builds for half a minute). ``jax_tensorflow``: softsign of 16 numbers, compiled and
in Python, against the framework's own, called as it is, in a compiled function, and with its gradient. Variants take
turns in random order within one process; without ``--backend`` both parts run, each in its own.
"""

FIGURES = {
    "pytorch: forward, over pybind11 and over TORCH_LIBRARY": "at most 1.1",
    "pytorch: forward and backward, over pybind11 and over TORCH_LIBRARY": "at most 1.1",
    "jax_tensorflow: a call over the framework's own operator": "no bar",
}
FORWARD, BOTH, CALL = FIGURES
