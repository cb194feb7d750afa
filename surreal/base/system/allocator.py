"""Settings of the C library's allocator, which NumPy's and torch's arrays on the CPU come from."""

from __future__ import annotations

import ctypes

# <malloc.h> of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_KEPT_BYTES = 256 << 20
_LARGEST_KEPT_BYTES = 32 << 20


def keep_freed_memory() -> bool:
    """Keep freed memory for the next time, instead of giving it back to the system; call it early.

    A forward of a convolutional network takes and frees tens of MiB each time, a batch of images several. Where they
    come from the system, which clears every page of them, that is up to half as much work again as the network itself.
    Up to 256 MiB are kept, of arrays of up to 32 MiB each.

    Returns:
        Whether the C library is one that can be told.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES))
