"""A stand-in for a GPU: the kernels compiled as C++ for the host, on NumPy's arrays."""

import contextlib
import ctypes
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np

from marginalis.gpu.device import compiler_options, kernel_source

COMPILER = shutil.which("g++") or shutil.which("clang++")
HEADER = Path(__file__).with_name("cuda_host.h")
TYPES = {
    np.float32: ctypes.c_float,
    np.float64: ctypes.c_double,
    np.int32: ctypes.c_int,
    np.uint32: ctypes.c_uint,
    np.uint64: ctypes.c_uint64,
    np.int64: ctypes.c_int64,
}


class HostDevice:
    """What `marginalis.gpu.device.Device` does, by the host."""

    def __init__(self, multiprocessors=1, free=1 << 30):
        self.multiprocessors, self.free, self.shared_bytes, self.has_warpgroups = multiprocessors, free, 0, False
        self.number, self.launches, self.kernels, self.keeps = 0, [], {}, {}
        self.folder, self.lock = tempfile.TemporaryDirectory(), threading.RLock()

    def free_bytes(self):
        return self.free

    def upload(self, values):
        return np.array(values)

    def upload_all(self, *arrays):
        return [np.array(x, order="C") for x in arrays]

    def kept(self, key, make):
        if key not in self.keeps:
            self.keeps[key] = self.upload(make())
        return self.keeps[key]

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)

    def empty(self, shape, dtype):
        return np.full(shape, 77, dtype)

    def download(self, values):
        return values.copy()

    def staged(self, values):
        return values.copy()

    def own_stream(self):
        return contextlib.nullcontext()

    def take(self, values, places, axis):
        return np.ascontiguousarray(values.take(places, axis=axis))

    def wait(self):
        pass

    def repeated(self, work):
        return work

    def kernel(self, files, macros, name="anneal", at_once=False):
        with self.lock:
            library = self.library(files, {"NUMBERS": 1, **macros}, name)

        def launch(*arguments):
            with self.lock:
                run(*arguments)

        def run(blocks, block, shared, *arguments):
            self.launches.append((blocks, block))
            library.set_launch(*(blocks if isinstance(blocks, tuple) else (blocks, 1)), block, at_once, shared)
            types = [TYPES.get(type(x), ctypes.c_void_p) for x in arguments]
            given = [x.ctypes.data if isinstance(x, np.ndarray) else x if x is None else x.item() for x in arguments]
            assert all(x.flags.c_contiguous for x in arguments if isinstance(x, np.ndarray))
            entry = library.entry
            entry.restype = ctypes.c_void_p
            ctypes.CFUNCTYPE(None, *types)(entry())(*given)
            assert not library.went_too_far(), "a kernel has written past its shared memory"

        return launch

    def library(self, files, macros, name):
        key = str((files, sorted(macros.items(), key=str), name))
        if key not in self.kernels:
            source = Path(self.folder.name) / f"{len(self.kernels)}.cpp"
            tail = f'extern "C" void *entry() {{ return (void *)&Host<{name}>::run; }}'
            source.write_text(f'#include "{HEADER}"\n{kernel_source(*files)}\n{tail}\n')
            options = [x for x in compiler_options(macros) if x.startswith(("-std", "-D"))]
            command = [COMPILER, "-x", "c++", "-march=native", "-shared", "-fPIC", "-w", "-ffp-contract=off", *options]
            subprocess.run([*command, source, "-o", source.with_suffix(".so")], check=True)
            self.kernels[key] = ctypes.CDLL(str(source.with_suffix(".so")))
        return self.kernels[key]


HOST = HostDevice()
