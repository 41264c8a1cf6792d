"""The memory that is still available to this process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_UNKNOWN = 4e9  # Assumed memory in bytes on systems that do not report it.


def free_memory() -> float:
    """Return the free memory in bytes, within the limit of the container, if there is one."""
    found = []
    with contextlib.suppress(ValueError, OSError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024.0 * float(line.split()[1]))
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(ValueError, OSError):
            found.append(float((_CGROUP / limit).read_text()) - float((_CGROUP / used).read_text()))
    if not found:
        with contextlib.suppress(ValueError, OSError, AttributeError):
            found.append(0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return max(0.0, min(found, default=_UNKNOWN))
