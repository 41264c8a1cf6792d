"""A GPU through CuPy: arrays, kernels compiled at run time, and short messages about anything that is missing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import shown, whole

COMMON = Path(__file__).with_name("common.cu")
_OLDEST = 70  # Smallest compute capability, times ten; __syncwarp requires it.
_ELSE = "engine 'auto' runs on the CPU"
_opening = threading.Lock()
_ALIGNED = 256  # Alignment of arrays in bytes, which is that of allocations.
_HOPPER = "-arch=sm_90a"  # Compiler option for instructions that only Hopper GPUs have.
_ONLY_HOPPER = 'extern "C" __global__ void only() { asm volatile("wgmma.fence.sync.aligned;"); }'
_KEPT = 16  # Number of arrays that stay on a GPU for the next run.
_SPARE = 0.8  # Largest share of the free memory to use.


class NoDevice(ValueError):
    """There is no usable GPU, or not enough memory on it."""


def kernel_source(*files: Path) -> str:
    """Return the text of kernels, preceded by their common part."""
    return "\n".join(file.read_text(encoding="utf-8") for file in (COMMON, *files))


def compiler_options(macros: Mapping[str, object]) -> tuple[str, ...]:
    """Return the options of the compiler: the macros that are not None, and no implicit fused multiply-adds.

    With the macro TOGETHER four warps multiply matrices together, which only Hopper GPUs can.
    """
    given = (f"-D{name}={value}" for name, value in macros.items() if value is not None)
    return ("-std=c++17", "-fmad=false", *given, *((_HOPPER,) if macros.get("TOGETHER") else ()))


class Device:
    """A GPU: uploads and downloads arrays, and runs kernels."""

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy, self._here = cupy, cupy.cuda.Device(number)
        self.number = number
        self.multiprocessors = int(self._here.attributes["MultiProcessorCount"])
        self.shared_bytes = self._most_shared = int(self._here.attributes["MaxSharedMemoryPerBlockOptin"])  # Per block.
        self._lock = threading.Lock()
        self._kernels: dict[Any, Any] = {}
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._streams: list[Any] = []  # Streams that no thread uses now.

    @cached_property
    def has_warpgroups(self) -> bool:
        """Whether four warps can multiply together: on Hopper, if CuPy can compile for it (with CUDA 12 it cannot)."""
        if self._here.compute_capability != "90":
            return False
        try:
            with self._selected():
                return bool(self._cupy.RawModule(code=_ONLY_HOPPER, options=(_HOPPER,)).get_function("only").kernel)
        except Exception:  # After any failure the other kernels are used.
            return False

    def free_bytes(self) -> int:
        """Return the memory that may be used, in bytes."""
        with self._here:
            pool = self._cupy.get_default_memory_pool()
            free = self._here.mem_info[0] + pool.free_bytes()
            if limit := pool.get_limit():  # The limit is set by CUPY_GPU_MEMORY_LIMIT.
                free = min(free, max(0, limit - pool.used_bytes()))
            return int(_SPARE * free)

    def upload(self, values: np.ndarray) -> Any:
        """Return a copy of an array on the GPU."""
        with self._selected():
            return self._cupy.asarray(values)

    def upload_all(self, *arrays: np.ndarray) -> list[Any]:
        """Return copies of some arrays, uploaded in one transfer: processes that share a GPU queue for each."""
        starts = np.cumsum([0, *(-(-x.nbytes // _ALIGNED) * _ALIGNED for x in arrays)])
        together = np.zeros(starts[-1], np.uint8)
        for x, start in zip(arrays, starts, strict=False):
            together[start : start + x.nbytes] = np.ravel(x).view(np.uint8)
        there = self.upload(together)
        return [
            there[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
            for x, start in zip(arrays, starts, strict=False)
        ]

    def kept(self, key: tuple[Hashable, ...], make: Callable[[], np.ndarray]) -> Any:
        """Return the array that is kept under this key; if there is none, upload the result of `make` and keep it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        there = self.upload(make())
        with self._lock:
            self._kept[key] = there
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return there

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of zeros on the GPU."""
        with self._selected():
            return self._cupy.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialized array on the GPU."""
        with self._selected():
            return self._cupy.empty(shape, dtype)

    def download(self, values: Any) -> np.ndarray:
        """Return a copy of an array of the GPU, after all launched work is done."""
        with self._selected():
            self._await()
            return self._cupy.asnumpy(values)

    def staged(self, values: Any) -> np.ndarray:
        """Return the same in page-locked memory, which is filled several times as fast; it should be released soon."""
        with self._selected():
            self._await()
            found: np.ndarray
            try:
                memory = self._cupy.cuda.alloc_pinned_memory(values.nbytes)
            except Exception:  # The system limits such memory.
                found = self._cupy.asnumpy(values)
                return found
            found = np.frombuffer(memory, values.dtype, values.size).reshape(values.shape)
            values.get(out=found)
            return found

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """Let the work of this thread overlap with that of others; it waits only for what this thread has launched."""
        with self._selected():
            with self._lock:  # Streams are used again, because each has memory of its own.
                stream = self._streams.pop() if self._streams else self._cupy.cuda.Stream(non_blocking=True)
            try:
                with stream:
                    yield
            finally:
                stream.synchronize()
                with self._lock:
                    self._streams.append(stream)

    def take(self, values: Any, places: np.ndarray, axis: int) -> Any:
        """Return the given rows or columns of an array."""
        with self._selected():
            return values.take(self._cupy.asarray(places), axis=axis)

    def wait(self) -> None:
        """Wait until all launched work is done."""
        with self._selected():
            self._await()

    def _await(self) -> None:
        """Sleep until all launched work is done, without using the processor."""
        event = self._cupy.cuda.Event(block=True, disable_timing=True)
        event.record()
        event.synchronize()

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record the launches of `work` as a graph, and return a function that launches it.

        The kernels must be compiled already.
        """
        with self._selected(), self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            work()
            graph = stream.end_capture()

        def again() -> None:
            with self._selected():
                graph.launch()

        return again

    def kernel(
        self, files: Sequence[Path], macros: Mapping[str, object], name: str = "anneal", at_once: bool = False
    ) -> Callable[..., None]:
        """Return a kernel as a function of the number of blocks, threads per block, shared bytes and arguments.

        `at_once` is for blocks that wait for each other: the launch fails unless all of them can run at the same time.
        """
        key = (tuple(files), tuple(sorted(macros.items(), key=str)), name)
        with self._lock:
            if key not in self._kernels:
                with self._selected():
                    code, options = kernel_source(*files), compiler_options(macros)
                    compiled = self._cupy.RawModule(code=code, options=options).get_function(name)
                    # CUDA requires this setting above the default size; one maximum serves all launches.
                    compiled.max_dynamic_shared_size_bytes = self._most_shared - compiled.shared_size_bytes
                self._kernels[key] = compiled
        compiled = self._kernels[key]

        def launch(blocks: int | tuple[int, int], block: int, shared: int, *arguments: Any) -> None:
            with self._selected():
                given = tuple(np.uint64(0) if x is None else x for x in arguments)
                grid = blocks if isinstance(blocks, tuple) else (blocks,)
                compiled.kernel(grid, (block,), given, shared_mem=shared, enable_cooperative_groups=at_once)

        return launch

    @contextmanager
    def _selected(self) -> Iterator[None]:
        """Make this GPU the current one, and turn its out-of-memory errors into a short `NoDevice`."""
        try:
            with self._here:
                yield
        except Exception as error:
            raise _full(error, self.number) from None


def _full(error: Exception, number: int) -> Exception:
    """Return an error, or a `NoDevice` if it is one of the out-of-memory errors of CuPy, the runtime and the driver."""
    if "out of memory" not in str(error).lower():
        return error
    other = "choose another GPU (device), wait until there is room"
    return NoDevice(f"GPU {number} is full ({str(error).rstrip('.')}): {other}, or {_ELSE}")


def device_numbers(device: object) -> tuple[int, ...]:
    """Return the numbers of the GPUs in the option `device`, by default the first, or raise a ValueError."""
    if device is None:
        return (0,)
    try:
        given = device.split(",") if isinstance(device, str) else device
        if isinstance(given, Sequence) and given and not isinstance(given, bytes):
            return tuple(whole(int(x) if isinstance(x, str) else x, "device", 0, 2**16) for x in given)
    except ValueError:
        pass
    if isinstance(device, str | Sequence):
        raise ValueError(f"device is {shown(device)}; it must be the number of a GPU, or several, as in 0,1")
    return (whole(device, "device", 0, 2**16),)


def open_device(number: int | None = None) -> Device:
    """Return a GPU by its number, by default the first, or raise a `NoDevice` that names what is missing."""
    with _opening:
        return _opened(0 if number is None else number)


@cache
def _opened(number: int) -> Device:
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
    if not 0 <= number < count:
        there = "is one GPU, number 0" if count == 1 else f"are {count} GPUs, numbers 0 to {count - 1}"
        raise NoDevice(f"device is {number}; there {there}")
    try:
        if int(cupy.cuda.Device(number).compute_capability) < _OLDEST:
            raise NoDevice(f"GPU {number} is too old: the kernels need compute capability {_OLDEST / 10}; {_ELSE}")
        return Device(cupy, number)
    except runtime.CUDARuntimeError as error:
        raise _full(error, number) from None
