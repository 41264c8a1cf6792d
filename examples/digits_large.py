"""ln p of handwritten digits under an RBM of 784 + 500 units, which nothing can sum exactly, in one call.

The digits of scikit-learn are enlarged to 28×28 and learnt by persistent contrastive divergence (see training.py). The
model is written to demo/digits.npz, or to the file that is named as argument. Takes about a minute on two cores.
"""

import sys
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from training import pcd

import marginalis as mg


def enlarged() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 784 black or white pixels: four fifths to train on, one fifth to test."""
    images = zoom(load_digits().images, (1, 3.5, 3.5), order=1) > 8  # pixels from 0 to 16
    train, test = train_test_split(images.reshape(len(images), -1), test_size=0.2, random_state=0)
    return train, test


def main(path: Path) -> None:
    train, test = enlarged()
    begin = time.perf_counter()
    *_, parameters = pcd(train, 500, 20, rate=0.05)
    model = mg.rbm(*parameters, units="binary")
    path.parent.mkdir(exist_ok=True)
    mg.save(model, path)
    print(f"Trained on {len(train)} rows in {time.perf_counter() - begin:.0f} s; model: {path}\n")
    print(f"{len(test)} rows that it has not seen:")
    print(mg.log_likelihood(model, test, tolerance=0.1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/digits.npz"))
