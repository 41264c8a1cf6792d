"""One GPU through CuPy: arrays, kernels compiled at run time and kept on disk, and one line for what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

COMMON = Path(__file__).with_name("common.cu")
_OLDEST = 70  # compute capability, times ten: __syncwarp and what goes with it
_ELSE = "engine 'auto' runs on the CPU"
_SPARE = 0.8  # share of the free memory that is taken at most


class NoDevice(ValueError):
    """There is no GPU to run on, or no room on it."""


def kernel_source(*files: Path) -> str:
    """Return the text of kernels, with what they all share before it."""
    return "\n".join(file.read_text(encoding="utf-8") for file in (COMMON, *files))


def compiler_options(macros: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a compiler is told: multiply-adds only where the source says so, and the macros; None for absent."""
    given = (f"-D{name}={value}" for name, value in macros.items() if value is not None)
    return ("-std=c++17", "-fmad=false", *given)


class Device:
    """A GPU: arrays go up and come down, kernels run on them."""

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy, self._here = cupy, cupy.cuda.Device(number)
        self.number = number
        self.multiprocessors = int(self._here.attributes["MultiProcessorCount"])
        self.shared_bytes = int(self._here.attributes["MaxSharedMemoryPerBlockOptin"])  # of one of them
        self._lock = threading.Lock()
        self._kernels: dict[Any, Any] = {}

    def free_bytes(self) -> int:
        """Return how much memory can be taken."""
        with self._here:
            pool = self._cupy.get_default_memory_pool()
            return int(_SPARE * (self._here.mem_info[0] + pool.free_bytes()))

    def upload(self, values: np.ndarray) -> Any:
        """Return a copy of an array on the GPU."""
        return self._roomy(lambda: self._cupy.asarray(values))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of zeros on the GPU."""
        return self._roomy(lambda: self._cupy.zeros(shape, dtype))

    def download(self, values: Any) -> np.ndarray:
        """Return a copy of an array of the GPU, once all before it is done."""
        with self._here:
            return self._cupy.asnumpy(values)

    def take(self, values: Any, places: np.ndarray, axis: int) -> Any:
        """Return these rows or columns of an array."""
        return self._roomy(lambda: values.take(self._cupy.asarray(places), axis=axis))

    def wait(self) -> None:
        """Return when all that was launched is done."""
        with self._here:
            self._cupy.cuda.get_current_stream().synchronize()

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that launches what `work` launches, all at once; it has been launched before."""
        with self._here, self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            work()
            graph = stream.end_capture()

        def again() -> None:
            with self._here:
                graph.launch()

        return again

    def kernel(
        self, files: Sequence[Path], macros: Mapping[str, object], name: str = "anneal", at_once: bool = False
    ) -> Callable[..., None]:
        """Return a kernel as a function of its blocks, the threads of each, shared bytes and arguments.

        `at_once` if its blocks wait for each other: then all of them run, or it is an error.
        """
        key = (tuple(files), tuple(sorted(macros.items(), key=str)), name)
        with self._lock:
            if key not in self._kernels:
                with self._here:
                    code, options = kernel_source(*files), compiler_options(macros)
                    compiled = self._cupy.RawModule(code=code, options=options).get_function(name)
                self._kernels[key] = compiled
        compiled = self._kernels[key]

        def launch(blocks: int | tuple[int, int], block: int, shared: int, *arguments: Any) -> None:
            with self._here:
                if shared > 48 << 10:  # more than what any kernel gets
                    compiled.max_dynamic_shared_size_bytes = shared
                given = tuple(np.uint64(0) if x is None else x for x in arguments)
                grid = blocks if isinstance(blocks, tuple) else (blocks,)
                compiled.kernel(grid, (block,), given, shared_mem=shared, enable_cooperative_groups=at_once)

        return launch

    def _roomy(self, make: Callable[[], Any]) -> Any:
        try:
            with self._here:
                return make()
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise NoDevice(f"GPU {self.number} has no room for this: {error}; take fewer chains, or {_ELSE}") from None


@cache
def open_device(number: int | None = None) -> Device:
    """Return a GPU by its number, the first by default, or raise a `NoDevice` that says what is missing."""
    try:
        import cupy
    except ImportError:
        raise NoDevice(f"engine 'cuda' needs CuPy: pip install 'marginalis[cuda]'; {_ELSE}") from None
    runtime = cupy.cuda.runtime
    try:
        driver = runtime.driverGetVersion()
        if driver == 0:
            raise NoDevice(f"engine 'cuda' needs a GPU by NVIDIA, and there is no driver of one; {_ELSE}")
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        missing = str(error).partition(": ")[2] or str(error)
        raise NoDevice(f"engine 'cuda' finds no GPU that it can use ({missing}); {_ELSE}") from None
    chosen = 0 if number is None else number
    if not 0 <= chosen < count:
        there = "is one GPU, number 0" if count == 1 else f"are {count} GPUs, numbers 0 to {count - 1}"
        raise NoDevice(f"device is {chosen}; there {there}")
    if int(cupy.cuda.Device(chosen).compute_capability) < _OLDEST:
        raise NoDevice(f"GPU {chosen} is too old: the kernels need compute capability {_OLDEST / 10}; {_ELSE}")
    return Device(cupy, chosen)
