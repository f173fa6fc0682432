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
from deep500.measure.allocation import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
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
        allocation.keep_freed_memory()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_setting_that_glibc_refuses_is_said(monkeypatch):
    class Refusing:
        def mallopt(self, setting, value):
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refusing())
    with pytest.raises(InputError, match="no answer of glibc"):
        allocation.keep_freed_memory()


def test_the_key_has_one_setting():
    fits, expected = KEYS["malloc"].check
    assert fits("kept") and fits(None) and not fits("keep") and not fits(True) and "kept" in expected
