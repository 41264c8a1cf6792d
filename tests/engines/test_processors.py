"""Kernels on other processors, and without compilation."""

import os
import subprocess
import sys

import pytest

ALL_KERNELS = """
import numpy as np, scipy.sparse as sp, marginalis as mg
from marginalis.simd.functions import HAS_AVX512
assert not HAS_AVX512
rng = np.random.default_rng(0)
w, b, c = rng.normal(size=(5, 6)), rng.normal(size=5), rng.normal(size=6)
dense, sparse = (mg.rbm(x, b, c) for x in (w, sp.csr_array(np.where(rng.random(w.shape) < 0.2, w, 0) + np.eye(5, 6))))
for model, precision, atol, transition in (
    (dense, "single", 1e-4, "gibbs"),
    (dense, "double", 1e-10, "metropolis"),
    (sparse, "single", 1e-4, "metropolis"),
    (sparse, "double", 1e-10, "gibbs"),
)[:KERNELS]:
    options = dict(steps=9, chains=40, precision=precision, transition=transition)
    slow, fast = (mg.estimate(model, engine=e, **options).log_weights for e in ("numpy", "numba"))
    np.testing.assert_allclose(fast, slow, atol=atol)
for t in (1.0, 1e-3):  # both forms of the tables
    model = mg.rbm(w, b, c, temperature=t)
    np.testing.assert_allclose(mg.exact_log_z(model, method="enumeration"), mg.exact_log_z(model, method="elimination"))
"""


def in_a_fresh_interpreter(code, **settings):
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, 4), ({"NUMBA_ENABLE_AVX": "0"}, 1)],
    ids=["generic", "no AVX"],
)
def test_processors_without_avx512(settings, kernels):
    """The portable code path of every kernel, compiled for a plain processor, or as the user wants it."""
    in_a_fresh_interpreter(ALL_KERNELS.replace("KERNELS", str(kernels)), **settings)


def test_without_compilation_the_reference_serves():
    code = """
import numpy as np, pytest, marginalis as mg
model = mg.rbm(np.ones((3, 4)), np.zeros(3), np.zeros(4))
result = mg.estimate(model, steps=5, chains=8)
assert result.engine == "numpy"
assert abs(mg.exact_log_z(model, method="enumeration") - mg.exact_log_z(model, method="elimination")) < 1e-12
with pytest.raises(ValueError, match="NUMBA_DISABLE_JIT"):
    mg.estimate(model, engine="numba")
"""
    in_a_fresh_interpreter(code, NUMBA_DISABLE_JIT="1")
