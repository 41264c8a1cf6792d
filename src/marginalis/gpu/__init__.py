"""Access to NVIDIA GPUs through CuPy: `device` manages arrays and kernels, and all kernels include `common.cu`.

The package imports only `checks`. CuPy is imported when a device is first opened.
"""

from __future__ import annotations

ENGINE = "cuda"  # The name in options of the engine that runs on a GPU.


def needs_gpu(engine: object) -> bool:
    """Whether `engine` is the name of an engine that runs on a GPU."""
    return isinstance(engine, str) and engine == ENGINE
