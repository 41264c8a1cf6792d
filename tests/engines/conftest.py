"""What the tests of the GPU engine run on: a GPU, or the host in its place."""

import pytest
from cuda_host import COMPILER, HOST

from marginalis.engines import cuda
from marginalis.engines.cuda import small
from marginalis.exact import ways
from marginalis.gpu import device as gpu

ON = [
    pytest.param("host", marks=pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")),
    pytest.param("gpu", marks=pytest.mark.gpu),
]


@pytest.fixture(params=ON)
def on(request, monkeypatch):
    """Return the GPU, or the host in its place."""
    if request.param == "gpu":
        return gpu.open_device(0)
    monkeypatch.setattr(cuda, "open_device", lambda number: HOST)
    monkeypatch.setattr(ways, "open_device", lambda number: HOST)
    monkeypatch.setattr(small, "_BLOCK", 32)
    monkeypatch.setattr(small, "_WARPS", 2)
    return HOST


@pytest.fixture
def roomy(on, monkeypatch):
    """Return the same, with shared memory."""
    if on is HOST:
        monkeypatch.setattr(on, "shared_bytes", 100 << 10)
    return on
