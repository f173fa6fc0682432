"""Integer programs: what a library prints by itself is never in the results."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from deep500.transformations.integer_program import _printed_to_stderr

NOISY = """
import ctypes
from deep500.transformations import integer_program as program
libc = ctypes.CDLL(None)
libc.printf(b"before\\n")
print("result 1")
with program._printed_to_stderr():
    libc.printf(b"noise\\n")
print("result 2")
"""


def test_what_c_prints_goes_to_stderr(capfd):
    with _printed_to_stderr():
        ctypes.CDLL(None).printf(b"noise\n")
    out, err = capfd.readouterr()
    assert out == "" and err == "noise\n"


def test_into_a_pipe_where_c_prints_late():
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split("\n")) == ["", "before", "result 1", "result 2"] and done.stderr == "noise\n"
