"""Freed memory that is kept: the same results, fewer faults of pages, and one line where it cannot be had."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from deep500.errors import InputError
from deep500.measure import allocation
from deep500.recipe.schema import KEYS

FAULTS = """
import resource, sys
import numpy as np
from deep500.measure.allocation import set_allocator
if sys.argv[1] == "kept":
    set_allocator("kept")
for turn in range(42):
    if turn == 2:
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(48 * 2**17)  # 48 MiB, above the largest block that glibc would keep by itself
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_pages_are_faulted_in_once():
    """Counted by the kernel: without the setting, every array's pages are new."""
    counted = {
        word: int(subprocess.run([sys.executable, "-c", FAULTS, word], capture_output=True, check=True).stdout)
        for word in ("kept", "usual")
    }
    assert counted["kept"] < 0.05 * counted["usual"], counted


def test_another_c_library_is_refused(monkeypatch):
    monkeypatch.setattr(allocation.platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(InputError, match="expected glibc"):
        allocation.set_allocator("kept")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_setting_that_glibc_refuses_is_said(monkeypatch):
    class Refusing:
        def mallopt(self, setting, value):
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refusing())
    with pytest.raises(InputError, match="no answer of glibc"):
        allocation.set_allocator("kept")


HOLES = """
import ctypes, re, sys
import numpy as np
from deep500.measure.allocation import set_allocator
if sys.argv[1] == "returned":
    set_allocator("returned")
for turn in range(4):  # blocks of 2 to 30 MiB, of which every other one is freed
    blocks = [np.ones((2 + (7 * n + turn) % 29) * 2**17) for n in range(16)]
    del blocks[::2]
print(int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) - sum(b.nbytes for b in blocks) // 1024)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_is_freed_leaves_the_process():
    """Counted by the kernel: resident beyond what is in use."""
    kept = {
        word: int(subprocess.run([sys.executable, "-c", HOLES, word], capture_output=True, check=True).stdout)
        for word in ("returned", "usual")
    }
    assert kept["returned"] < kept["usual"] - 20_000, kept


def test_the_key_has_two_settings():
    fits, expected = KEYS["malloc"].check
    assert (
        fits("kept") and fits("returned") and fits(None) and not fits("keep") and not fits(True) and "kept" in expected
    )
