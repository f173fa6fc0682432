"""The acceptance figures of measuring: ``python -m tests.benchmarks.measuring [--only 1 2 9] [--trials 2000]``."""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy starts its threads:
    os.environ.setdefault(_variable, "1")  # arrays here are small
