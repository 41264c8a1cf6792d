"""Train an RBM on your own copy of MNIST and print ln Z and ln p of the test images with their intervals.

    python examples/mnist.py                             # scikit-learn's 8×8 digits, in a few seconds
    python examples/mnist.py ~/mnist                     # a folder with the four IDX files, gzipped or not
    python examples/mnist.py mnist.npz --hidden 500      # x_train and x_test, as Keras distributes them
    python examples/mnist.py train-images.idx test.idx   # two files of images

Training is persistent contrastive divergence (Tieleman 2008) in NumPy, see training.py; with 60 000 images and 500
hidden units an epoch takes some seconds. `--save FILE` keeps the machine for `marginalis estimate FILE`.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from training import Parameters, digits, pcd

import marginalis as mg

NAMES = ("train-images*idx3-ubyte*", "t10k-images*idx3-ubyte*")  # As Yann LeCun named the files.
IDX_IMAGES = 2051  # First number of an IDX file of unsigned bytes in three dimensions.


def read_idx(path: Path) -> np.ndarray:
    """Return the images of an IDX file, one per row."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    head = np.frombuffer(content[:16], ">u4")
    if len(head) < 4 or head[0] != IDX_IMAGES or len(content) != 16 + np.prod(head[1:], dtype=np.int64):
        raise ValueError(f"{path} is not an IDX file of images")
    return np.frombuffer(content, np.uint8, offset=16).reshape(int(head[1]), -1)


def read(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return the images to train on and to test, as rows of grey values or of zeros and ones."""
    if not paths:
        return digits()
    if len(paths) == 1 and paths[0].is_dir():
        found = [sorted(paths[0].rglob(name)) for name in NAMES]
        if not all(found):
            raise ValueError(f"{paths[0]} has no files {' and '.join(NAMES)}")
        paths = [files[0] for files in found]
    if len(paths) == 1:
        with np.load(paths[0]) as arrays:
            if not {"x_train", "x_test"} <= set(arrays):
                raise ValueError(f"{paths[0]} has the arrays {', '.join(arrays)}; x_train and x_test are needed")
            train, test = (arrays[name].reshape(len(arrays[name]), -1) for name in ("x_train", "x_test"))
            return train, test
    if len(paths) > 2:
        raise ValueError(f"{len(paths)} paths given; one or two are needed")
    return read_idx(paths[0]), read_idx(paths[1])


def black_and_white(images: np.ndarray) -> np.ndarray:
    """Return True where a pixel is brighter than half of the range."""
    return images > (127 if images.dtype == np.uint8 else 0.5)


def reported(every: Iterator[Parameters], epochs: int) -> Iterator[Parameters]:
    """Pass the parameters of every epoch on, and print the progress on stderr ten times."""
    begin = time.perf_counter()
    for epoch, parameters in enumerate(every):
        if epoch and epoch % max(1, epochs // 10) == 0:
            print(f"epoch {epoch} of {epochs}, {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        yield parameters


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="a folder, an .npz file, or two IDX files")
    parser.add_argument("--hidden", type=int, help="hidden units; 500, or 64 for scikit-learn's digits")
    parser.add_argument("--epochs", type=int, help="passes over the training data; 20, or 200 for the digits")
    parser.add_argument("--sweeps", type=int, default=1, help="Gibbs sweeps between two updates")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate, which falls to 0 in the second half")
    parser.add_argument("--tolerance", type=float, default=0.1, help="half the width of the interval of ln Z")
    parser.add_argument("--budget", type=float, help="seconds that the estimate of ln Z may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="write the machine to this file")
    options = parser.parse_args(arguments)
    options.hidden = options.hidden or (500 if options.paths else 64)
    options.epochs = options.epochs or (20 if options.paths else 200)
    try:
        train, test = map(black_and_white, read(options.paths))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(
        f"{len(train)} images to train on, {len(test)} to test, {train.shape[1]} pixels; {options.hidden} hidden units"
    )
    every = pcd(train, options.hidden, options.epochs, rate=options.rate, sweeps=options.sweeps, seed=options.seed)
    *_, trained = reported(every, options.epochs)
    model = mg.rbm(*trained, units="binary")
    if options.save:
        mg.save(model, options.save)

    log_z = mg.estimate(model, tolerance=options.tolerance, budget=options.budget, seed=options.seed)
    low, high = log_z.log_z_interval
    print(f"ln Z = {log_z.log_z:.2f}   (95 % interval {low:.2f} to {high:.2f}, {log_z.seconds:.1f} s)")
    for name, rows in (("train", train), ("test", test)):
        score = mg.log_likelihood(model, rows, log_z)
        low, high = score.interval
        doubt = f"{low:.2f} to {high:.2f} by ln Z; ± {score.sampling_error:.2f} by the choice of rows"
        print(f"mean ln p, {name:5} = {score.mean:.2f}   ({doubt})")
    for warning in log_z.warnings:
        print(f"warning: {warning}")


if __name__ == "__main__":
    main()
