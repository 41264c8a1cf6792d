"""Vectors of chains as Numba values, and the functions of kernels that act on them.

`vector` defines the type and its arithmetic, `functions`, `numbers`, `bits` and `lookup` the functions of vectors,
`draws` the random bits of kernels, and `cache` the decorator `kernel`, which compiles a function and keeps the result
on disk. The package imports `random` and `parallel.progress` only. Read `vector` first, then `draws` and `functions`.
"""
