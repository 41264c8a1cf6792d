"""What is compiled for a kernel: each function once, for numbers of any value, and no machine code of its parts."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import config, njit

from marginalis.simd.cache import kernel
from marginalis.simd.draws import CALLED
from marginalis.simd.vector import larger, smaller

COUNTED = """
from collections import Counter

import numpy as np
from numba.core import event

import marginalis as mg
import marginalis.engines.cpu

with event.install_recorder("numba:compile") as compiled:
    mg.estimate(mg.rbm(np.full((5, 6), 0.1), np.zeros(5), np.zeros(6)), steps=3, chains=16)
ends = (e.data["dispatcher"].py_func for _, e in compiled.buffer if e.is_end)
for name, count in Counter(f"{f.__module__}.{f.__name__}" for f in ends).items():
    print(name, count)
"""
TWICE = {"_weigh_panel", "_factor_before"}  # One for small steps, and one for large ones.


def test_a_first_call_compiles_each_function_once(tmp_path):
    """The first call on a machine takes as long as there are functions to compile; a literal argument adds one."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COUNTED], env=environment, capture_output=True, text=True, check=True)
    counts = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}
    assert any("anneal_" in name for name in counts)
    assert {name.split(".")[-1] for name, count in counts.items() if count > 1} <= TWICE
    assert all(name.startswith("marginalis.") for name in counts)  # None of Numba's own.


@njit(**CALLED)
def halved(x, i):
    return 0.5 * x[i]


@njit(**CALLED)
def summed_halves(x, first, last):
    total = 0.0
    for i in range(first, last):
        total += halved(x, i)
    return total


def test_a_kernel_has_the_code_of_its_parts_which_have_none(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))  # A kernel that an earlier run has stored has no parts.

    @kernel(plain=True, error_model="numpy")
    def both(x, out):
        out[0] = summed_halves(x, smaller(len(x), 2), larger(2, len(x)))

    out = np.zeros(1)
    both(np.arange(5.0), out)
    assert out[0] == (2 + 3 + 4) / 2
    part = next(iter(summed_halves.overloads.values()))
    assert part.library.get_pointer_to_function(part.fndesc.llvm_func_name) == 0


@pytest.mark.parametrize(("x", "y"), [(3, -4), (-1, 2), (0.5, -0.25), (-3.0, 7.0)])
def test_smaller_and_larger(x, y):
    @njit
    def chosen(x, y):
        return smaller(x, y), larger(x, y)

    assert chosen(x, y) == (min(x, y), max(x, y))
