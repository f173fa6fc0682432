"""Memory that a program frees: given back to the system at once, or kept for the next allocation.

glibc's ``malloc`` maps large blocks anew each time and gives them back when they are freed, so that a training step
whose tensors are large pays for their pages again and again. To keep them costs memory, and saves that time.
"""

from __future__ import annotations

import ctypes
import platform

from deep500.errors import InputError

KEPT = "kept"
"""The one setting beside None, which leaves the allocator as it is."""

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_SETTINGS = {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 * 2**20}


def keep_freed_memory() -> None:
    """Have glibc keep what this process frees from now on, for as long as it lives.

    No block is mapped by itself (``M_MMAP_MAX`` 0), the heap is not trimmed below 2 GiB (``M_TRIM_THRESHOLD``), and it
    grows by 64 MiB at least (``M_TOP_PAD``), as with the environment's ``MALLOC_MMAP_MAX_=0``,
    ``MALLOC_TRIM_THRESHOLD_=2147483647`` and ``MALLOC_TOP_PAD_=67108864``. Allocators of GPUs do not change.

    Raises:
        InputError: another C library than glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        raise InputError(
            f"got malloc={KEPT!r} with the C library of {platform.system()}; expected glibc, whose allocator can be "
            "told: leave the key out"
        )
    libc = ctypes.CDLL(None)
    refused = [setting for setting, value in _SETTINGS.items() if not libc.mallopt(setting, value)]
    if refused:
        raise InputError(f"got no answer of glibc to mallopt {refused}; expected 1: leave malloc={KEPT!r} out")
