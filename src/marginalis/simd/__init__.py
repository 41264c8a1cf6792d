"""simd."""
