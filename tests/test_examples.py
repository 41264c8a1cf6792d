"""The example that reads a user's own files."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

import marginalis as mg

pytest.importorskip("sklearn")
EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def mnist(monkeypatch):
    """The module examples/mnist.py."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import mnist

    yield mnist
    for name in ("mnist", "training"):
        sys.modules.pop(name, None)


def idx(images):
    """The content of an IDX file."""
    return np.array([2051, *images.shape], ">u4").tobytes() + images.tobytes()


def test_mnist_is_read_from_every_kind_of_file(mnist, tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (n, 4, 3)).astype(np.uint8) for n in (30, 7)]
    folder = tmp_path / "raw" / "MNIST"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images[0]))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[1])))
    np.savez(tmp_path / "mnist.npz", x_train=images[0], x_test=images[1], y_test=np.arange(7))
    for paths in ([tmp_path], [tmp_path / "mnist.npz"], sorted(folder.iterdir(), reverse=True)):
        for found, expected in zip(mnist.read(paths), images, strict=True):
            assert (found == expected.reshape(len(expected), 12)).all()
    assert mnist.black_and_white(np.array([[127, 128]], np.uint8)).tolist() == [[False, True]]
    (tmp_path / "torn").write_bytes(idx(images[0])[:-1])
    with pytest.raises(ValueError, match="torn is not an IDX file"):
        mnist.read([tmp_path / "torn", tmp_path / "torn"])
    with pytest.raises(ValueError, match="has no files"):
        mnist.read([EXAMPLES])


def test_mnist_trains_and_answers(mnist, tmp_path, capsys):
    saved = tmp_path / "rbm.npz"
    mnist.main(["--hidden", "8", "--epochs", "2", "--save", str(saved)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1437 images to train on, 360 to test, 64 pixels; 8 hidden units"
    exact = mg.exact_log_z(mg.load(saved))
    words = lines[1].split()
    assert words[:2] == ["ln", "Z"]
    low, high = float(words[7]), float(words[9].rstrip(","))
    rounded = 0.005  # Printed numbers have two decimals.
    assert abs(float(words[3]) - exact) < 4.5 * (high - low) / 3.92 + rounded
    assert [line[:16] for line in lines[2:4]] == ["mean ln p, train", "mean ln p, test "]
    with pytest.raises(SystemExit, match="2"):
        mnist.main([str(tmp_path / "missing")])
