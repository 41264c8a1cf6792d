"""Paths: from which distribution to which model the chains are annealed, and what is summed before.

`path` has the type: a start, an end, the side that is sampled, and what is summed exactly beforehand. `base` has the
distributions that a path starts from, `mixture` the mixtures of them, `schedule` the β on the way, and `reduce` sums
the small parts of a model exactly, so that they are not annealed at all. May import `models` and `exact`. Read `path`
first.
"""
