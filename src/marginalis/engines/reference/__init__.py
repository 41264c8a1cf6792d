"""The NumPy reference: AIS and mAIS line by line as in the paper. Every other engine is tested against it.

Read `loop` together with the paper; `moves` has the transition kernels τ_k and `terms` the products of three or more
features. The package imports models, paths and random numbers, and nothing of the other engines.
"""
