"""Files of torch with the state of a module, read only by ``torch.load(weights_only=True)``."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ..checks import a_kind, one_line, open_file
from ..models.model import MRF
from ..models.named_arrays import from_state
from .archive import limit

# Largest ratio of the size of large arrays to that of the file.
_EXPANSION = 100
# Size, in bytes, up to which arrays are always accepted.
_SMALL = 64 << 20
# Escape sequences for colours in the messages of torch.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Largest number of values in a nested tuple, with repeated values counted each time.
_LARGEST_TREE = 10**6
# First version of torch in which weights_only is safe.
_SAFE = (2, 6)


def is_torch(file: IO[bytes]) -> bool:
    """Whether a zip archive was written by ``torch.save``."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") or name == "data.pkl" for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return False


def _is_endless(data: bytes) -> bool:
    """Whether a pickle has tuples of exponential size, made by repeated nesting, whose hash would take too long.

    The instructions are read without building any value; only the size of each value as a tree is computed.
    """
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[Any, int] = {}
    for operation, argument, _ in pickletools.genops(data):
        name = operation.name
        if name == "MARK":
            marks.append(len(stack))
        elif "GET" in name:
            stack.append(memo.get(argument, 1))
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif "PUT" in name:
            memo[argument] = stack[-1]
        else:
            before = operation.stack_before
            has_mark = pickletools.markobject in before
            keep = marks.pop() if has_mark else max(0, len(stack) - len(before))
            if has_mark:  # The value below the mark is consumed too.
                keep = max(0, keep - before.index(pickletools.markobject))
            size = 1 + sum(stack[keep:])
            if size > _LARGEST_TREE and name.startswith("TUPLE"):
                return True
            del stack[keep:]
            stack.extend([min(size, _LARGEST_TREE + 1)] * len(operation.stack_after))
    return False


def _claimed(state: Any, depth: int = 4) -> int:
    """Return the size of all tensors as float64, in bytes; a tensor that stores one number may have any shape."""
    if isinstance(state, Mapping):
        return sum(_claimed(x, depth - 1) for x in state.values()) if depth else 0
    numel = getattr(state, "numel", None)
    return 8 * int(numel()) if callable(numel) else 0


def _check_size(size: int, most: int) -> None:
    if size > limit():
        raise ValueError(f"holds {size / 2**30:.1f} GiB of arrays; the limit is {limit() / 2**30:.1f} GiB")
    if size > _SMALL and size > _EXPANSION * most:
        raise ValueError(f"expands to {size / 2**20:.0f} MiB, over {_EXPANSION} times its size")


def load_torch(path: str | Path) -> MRF:
    """Read the Boltzmann machine from the ``state_dict`` in a file (see `states.from_state`)."""
    try:
        import torch
    except ImportError:
        raise ValueError("is a torch file, and torch is not installed") from None
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    if version < _SAFE:
        raise ValueError(f"is a torch file, which torch {torch.__version__} cannot read safely: 2.6 is the first")
    with open_file(path, limit()) as file:
        most = os.fstat(file.fileno()).st_size
        with zipfile.ZipFile(file) as archive:
            _check_size(sum(info.file_size for info in archive.infolist()), most)
            try:
                names = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
                is_endless = any(_is_endless(archive.read(name)) for name in names)
            except Exception as error:  # Damaged zip files and pickles raise many types of errors.
                raise ValueError(f"is damaged: {one_line(error, 120)}") from None
        if is_endless:
            raise ValueError("holds tuples inside tuples beyond all measure, which no state_dict has")
        file.seek(0)
        try:
            state: Any = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            raise ValueError(
                "holds pickled objects beside plain tensors, which are not read: save state_dict() of the model instead"
            ) from None
        except Exception as error:  # torch raises many types of errors for damaged files.
            first = (str(error) or type(error).__name__).splitlines()[0]
            plain = one_line(_COLOURS.sub("", first), 120)
            raise ValueError(f"is damaged or no state_dict; torch says: {plain}") from None
        _check_size(_claimed(state), most)
    if not isinstance(state, Mapping):
        raise ValueError(f"holds {a_kind(state)}; it must hold a state_dict")
    return from_state(state, "state")
