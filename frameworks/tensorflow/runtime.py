"""Imports TensorFlow without the lines that its C++ part writes to stderr while it is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Send the process's stderr away for a moment; an error is still an exception."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only; a value that is set stays
with quiet():
    import tensorflow as tf

    tf.config.list_physical_devices("GPU")  # finding no GPU is worth several lines to TensorFlow

__all__ = ["tf"]
