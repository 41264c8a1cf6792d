"""The NumPy reference: AIS and mAIS line by line as in the paper. Every other engine is tested against it.

Read `loop` with the paper open; `moves` has the transition kernels τ_k.
"""
