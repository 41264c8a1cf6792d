"""Compiled kernels on disk: used, and never in the way."""

import ast
from pathlib import Path

import pytest

import marginalis as mg
from marginalis.simd import cache
from marginalis.simd.cache import kernel


def twice(x):
    return x + x


def compiled(monkeypatch, place):
    """The function as a new process would have it, its cache being in that place."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(place))
    return kernel()(twice)


def hits(function):
    assert function(2.0) == 4.0
    return sum(function.stats.cache_hits.values())


def test_the_cache_is_used(monkeypatch, tmp_path):
    assert hits(compiled(monkeypatch, tmp_path)) == 0
    assert hits(compiled(monkeypatch, tmp_path)) == 1
    monkeypatch.setattr(cache, "SOURCES", cache.SOURCES + 1)  # as if another file of the kernels had changed
    assert hits(compiled(monkeypatch, tmp_path)) == 0


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[: len(old) // 2], lambda old: b"\x00" * 64])
def test_a_spoiled_cache_is_replaced(monkeypatch, tmp_path, kind, damage):
    compiled(monkeypatch, tmp_path)(2.0)
    (file,) = tmp_path.rglob(f"*.{kind}")
    file.write_bytes(damage(file.read_bytes()))
    assert hits(compiled(monkeypatch, tmp_path)) == 0
    assert hits(compiled(monkeypatch, tmp_path)) == 1


def test_two_processes_at_once(monkeypatch, tmp_path):
    """Both have read an empty index; the second saves its kernel while the first is about to write its own."""
    first, second = (cache._Files(str(tmp_path), "kernel", 0) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(cache._Files, "_load_index", lambda files: {})
        write = first._save_data
        patch.setattr(first, "_save_data", lambda *args: (second.save("theirs", 2), write(*args)))
        first.save("ours", 1)
    assert (first.load("ours"), first.load("theirs")) in [(1, 2), (1, None), (None, 2)]


def test_no_place_for_a_cache(monkeypatch, tmp_path):
    """A file where a folder should be, no folder at all, and a full disk: compiled all the same."""
    (tmp_path / "file").write_text("")
    assert compiled(monkeypatch, tmp_path / "file" / "cache")(2.0) == 4.0
    with monkeypatch.context() as patch:
        patch.setattr("numba.core.caching.CompileResultCacheImpl._locator_classes", [])
        assert hits(compiled(monkeypatch, tmp_path)) == 0

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    assert hits(compiled(monkeypatch, tmp_path)) == 0


def test_the_cache_knows_every_file_of_the_kernels():
    """What the modules of kernels import, and what that imports, is in the checksum."""
    package = Path(mg.__file__).parent
    todo = [package / f"exact/{name}.py" for name in ("kernel", "pfaffian_kernel", "planar", "transfer")]
    todo += [package / "models/colouring.py", *(package / "engines/cpu").glob("*_kernel.py")]
    # where jobs run, and what is said meanwhile, changes nothing in a kernel
    others = {package / "parallel/threads.py", package / "parallel/progress.py"}
    seen = set(others)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.parents[node.level - 1]
                names = [node.module] if node.module else [name.name for name in node.names]
                found = [folder / f"{name.replace('.', '/')}.py" for name in names]
                assert all(file.exists() for file in found), f"{path}: look for what {names} are"
                todo += found
    assert seen - others <= set(cache.FILES)
    assert package / "random.py" in seen
