"""Memory that a program frees: given back to the system at once, or kept for the next allocation.

glibc's ``malloc`` maps large blocks anew each time and gives them back when they are freed, so that a training step
whose tensors are large pays for their pages again and again. To keep them costs memory, and saves that time. Blocks
below 32 MiB it comes to keep by itself, with holes between them: a step of 320 MB of values then takes 820 MB.
"""

from __future__ import annotations

import ctypes
import platform

from deep500.errors import InputError

KEPT, RETURNED = "kept", "returned"
"""The settings beside None, which leaves the allocator as it is."""

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8  # glibc's malloc.h
_SETTINGS = {
    KEPT: {_MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 * 2**20},
    RETURNED: {_MMAP_THRESHOLD: 128 * 2**10, _TRIM_THRESHOLD: 128 * 2**10, _ARENA_MAX: 1},
}


_settings_made: list[str] = []  # glibc cannot be asked


def allocator_settings() -> list[str]:
    """Settings that this process has made of its allocator, in their order."""
    return list(_settings_made)


def set_allocator(setting: str) -> None:
    """Have glibc keep what this process frees from now on, or return it, for as long as it lives.

    ``kept``: no block is mapped by itself (``M_MMAP_MAX`` 0), the heap is not trimmed below 2 GiB
    (``M_TRIM_THRESHOLD``), and it grows by 64 MiB at least (``M_TOP_PAD``), as with the environment's
    ``MALLOC_MMAP_MAX_=0``, ``MALLOC_TRIM_THRESHOLD_=2147483647`` and ``MALLOC_TOP_PAD_=67108864``. ``returned``: each
    block of 128 KiB or more is mapped by itself (``M_MMAP_THRESHOLD``) and unmapped when it is freed, and threads share
    one heap (``M_ARENA_MAX`` 1). Allocators of GPUs do not change.

    Raises:
        InputError: another C library than glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        raise InputError(
            f"got malloc={setting!r} with the C library of {platform.system()}; expected glibc, whose allocator can be "
            "told: leave the key out"
        )
    libc = ctypes.CDLL(None)
    refused = [name for name, value in _SETTINGS[setting].items() if not libc.mallopt(name, value)]
    if refused:
        raise InputError(f"got no answer of glibc to mallopt {refused}; expected 1: leave malloc={setting!r} out")
    if setting not in _settings_made:
        _settings_made.append(setting)


def save_memory() -> bool:
    """Set ``returned`` where memory is short and the C library can; whether it was set."""
    try:
        set_allocator(RETURNED)
    except InputError:
        return False
    return True
