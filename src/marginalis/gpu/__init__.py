"""Access to NVIDIA GPUs through CuPy: `device` manages arrays and kernels, and all kernels include `common.cu`.

The package imports only `checks`. CuPy is imported when a device is first opened.
"""
