"""One GPU through CuPy: arrays, kernels compiled at run time and kept on disk, and one line for what is missing."""

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
_OLDEST = 70  # compute capability, times ten: __syncwarp and what goes with it
_ELSE = "engine 'auto' runs on the CPU"
_opening = threading.Lock()
_ALIGNED = 256  # bytes, as whatever is allocated
_HOPPER = "-arch=sm_90a"
_ONLY_HOPPER = 'extern "C" __global__ void only() { asm volatile("wgmma.fence.sync.aligned;"); }'
_KEPT = 16  # small arrays that stay on a GPU for the next run
_SPARE = 0.8  # share of the free memory that is taken at most


class NoDevice(ValueError):
    """There is no GPU to run on, or no room on it."""


def kernel_source(*files: Path) -> str:
    """Return the text of kernels, with what they all share before it."""
    return "\n".join(file.read_text(encoding="utf-8") for file in (COMMON, *files))


def compiler_options(macros: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a compiler is told: multiply-adds only where the source says so, and the macros; None for absent.

    What has four warps multiply TOGETHER is code for Hopper alone.
    """
    given = (f"-D{name}={value}" for name, value in macros.items() if value is not None)
    return ("-std=c++17", "-fmad=false", *given, *((_HOPPER,) if macros.get("TOGETHER") else ()))


class Device:
    """A GPU: arrays go up and come down, kernels run on them."""

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy, self._here = cupy, cupy.cuda.Device(number)
        self.number = number
        self.multiprocessors = int(self._here.attributes["MultiProcessorCount"])
        self.shared_bytes = self._most_shared = int(self._here.attributes["MaxSharedMemoryPerBlockOptin"])  # of each
        self._lock = threading.Lock()
        self._kernels: dict[Any, Any] = {}
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    @cached_property
    def has_warpgroups(self) -> bool:
        """Whether four warps can multiply as one: on Hopper, if CuPy makes code for that (with CUDA 12 it cannot)."""
        if self._here.compute_capability != "90":
            return False
        try:
            with self._at_work():
                return bool(self._cupy.RawModule(code=_ONLY_HOPPER, options=(_HOPPER,)).get_function("only").kernel)
        except Exception:  # whatever is in the way, there is another way
            return False

    def free_bytes(self) -> int:
        """Return how much memory can be taken."""
        with self._here:
            pool = self._cupy.get_default_memory_pool()
            free = self._here.mem_info[0] + pool.free_bytes()
            if limit := pool.get_limit():  # CUPY_GPU_MEMORY_LIMIT
                free = min(free, max(0, limit - pool.used_bytes()))
            return int(_SPARE * free)

    def upload(self, values: np.ndarray) -> Any:
        """Return a copy of an array on the GPU."""
        with self._at_work():
            return self._cupy.asarray(values)

    def upload_all(self, *arrays: np.ndarray) -> list[Any]:
        """Return copies of some arrays, in one journey: processes that share a GPU wait for their turn at each."""
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
        """Return the array that was uploaded under this key not long ago, or upload the one that `make` makes."""
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
        with self._at_work():
            return self._cupy.zeros(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array on the GPU that holds anything."""
        with self._at_work():
            return self._cupy.empty(shape, dtype)

    def download(self, values: Any) -> np.ndarray:
        """Return a copy of an array of the GPU, once all before it is done."""
        with self._at_work():
            self._await()
            return self._cupy.asnumpy(values)

    def take(self, values: Any, places: np.ndarray, axis: int) -> Any:
        """Return these rows or columns of an array."""
        with self._at_work():
            return values.take(self._cupy.asarray(places), axis=axis)

    def wait(self) -> None:
        """Return when all that was launched is done."""
        with self._at_work():
            self._await()

    def _await(self) -> None:
        """Sleep until all that was launched is done, and leave the processor to others meanwhile."""
        event = self._cupy.cuda.Event(block=True, disable_timing=True)
        event.record()
        event.synchronize()

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that launches what `work` launches, all at once; it has been launched before."""
        with self._at_work(), self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            work()
            graph = stream.end_capture()

        def again() -> None:
            with self._at_work():
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
                with self._at_work():
                    code, options = kernel_source(*files), compiler_options(macros)
                    compiled = self._cupy.RawModule(code=code, options=options).get_function(name)
                    # once for launches of all sizes: more than what any kernel gets must be asked for
                    compiled.max_dynamic_shared_size_bytes = self._most_shared - compiled.shared_size_bytes
                self._kernels[key] = compiled
        compiled = self._kernels[key]

        def launch(blocks: int | tuple[int, int], block: int, shared: int, *arguments: Any) -> None:
            with self._at_work():
                given = tuple(np.uint64(0) if x is None else x for x in arguments)
                grid = blocks if isinstance(blocks, tuple) else (blocks,)
                compiled.kernel(grid, (block,), given, shared_mem=shared, enable_cooperative_groups=at_once)

        return launch

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Work on this GPU; say it in one line if that is full."""
        try:
            with self._here:
                yield
        except Exception as error:
            raise _full(error, self.number) from None


def _full(error: Exception, number: int) -> Exception:
    """Return an error, or the line that says that a GPU has no room: CuPy, the runtime and the driver have one each."""
    if "out of memory" not in str(error).lower():
        return error
    other = "choose another GPU (device), wait until there is room"
    return NoDevice(f"GPU {number} is full ({str(error).rstrip('.')}): {other}, or {_ELSE}")


def device_numbers(device: object) -> tuple[int, ...]:
    """Return the numbers of the GPUs that an option names, by default the first; or raise a ValueError."""
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
    """Return a GPU by its number, the first by default, or raise a `NoDevice` that says what is missing."""
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
