"""Paths of distributions along which chains are annealed, from a base to a model.

`path` defines the type `Path`: a start, an end, the side that is sampled, and the exact sum over the parts that are not
annealed; it also writes a path in ±1 spins for the fast engines. `base` has the distributions that a path can start
from, `mixture` mixtures of them, and `narrow_base` finds bases that may miss part of the model. `reduce` sums the small
parts of a model exactly. The package may import `exact`, `models` and below. Read `path` first, then `base`.
"""
