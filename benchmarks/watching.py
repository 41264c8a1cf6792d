"""Share of the training time that `mg.Watch` takes on a machine of 784 × 500 units: CPU seconds of both, in one run.

The data are synthetic images of 28 × 28 pixels; training is persistent contrastive divergence in float32 matrix
products of NumPy, with batches of 100 rows and 100 persistent chains, without any check or figure. One line is printed
for every epoch. Set OMP_NUM_THREADS=1 for one thread.

    python benchmarks/watching.py --rate 0.01 --sweeps 1 --epochs 5
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import marginalis as mg

SIDE, HIDDEN, BATCH = 28, 500, 100


def images(count: int, rng: np.random.Generator) -> np.ndarray:
    """Noisy, shifted copies of 40 random strokes."""
    y, x = np.mgrid[:SIDE, :SIDE]
    strokes = []
    for _ in range(40):
        image, place, angle = np.zeros((SIDE, SIDE)), rng.uniform(7, 21, 2), rng.uniform(0.0, 2.0 * np.pi)
        for _ in range(40):
            angle += rng.normal(scale=0.35)
            place = np.clip(place + (np.cos(angle), np.sin(angle)), 4, 24)
            image = np.maximum(image, np.exp(-((x - place[0]) ** 2 + (y - place[1]) ** 2) / 3.0))
        strokes.append(image)
    shifts = rng.integers(-2, 3, (count, 2))
    shown = [np.roll(strokes[i], shift, (0, 1)) for i, shift in zip(rng.integers(40, size=count), shifts, strict=True)]
    return (np.array(shown) > rng.uniform(0.2, 0.8, (count, SIDE, SIDE))).reshape(count, -1).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1/(1 + exp(−x)) in place."""
    np.exp(np.negative(x, out=x), out=x)
    x += 1.0
    return np.reciprocal(x, out=x)


def main() -> None:
    """Train, and print the seconds of training and of the watch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate; falls linearly to zero")
    parser.add_argument("--sweeps", type=int, default=1, help="Gibbs sweeps per batch, the k of PCD-k")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--updates", type=int, default=1, help="updates of the watch per epoch")
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--tolerance", type=float, default=0.5)
    parser.add_argument("--share", type=float, default=None, help="largest share of the time of the watch")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    train, test = images(given.rows, rng), images(1000, rng)
    share = (train.sum(axis=0) + 1.0) / (given.rows + 2.0)
    w = rng.normal(scale=0.01, size=(SIDE**2, HIDDEN)).astype(np.float32)
    b, c = np.log(share / (1.0 - share)).astype(np.float32), np.zeros(HIDDEN, dtype=np.float32)
    v = (rng.random((BATCH, SIDE**2), dtype=np.float32) < share).astype(np.float32)

    warm = mg.Watch(threads=1)
    for seed in range(3):  # Kernels are compiled once on a machine.
        warm.update(mg.rbm(np.random.default_rng(seed).normal(size=w.shape) * 1e-3, b, c, units="binary"))
    watch = mg.Watch(rows=test, threads=1, chains=given.chains, tolerance=given.tolerance, share=given.share)
    batches = given.rows // BATCH
    every = max(1, batches // given.updates)
    training = watching = 0.0
    for epoch in range(given.epochs):
        order = rng.permutation(given.rows)
        rate = np.float32(given.rate * (1.0 - epoch / given.epochs))
        steps, sources = 0, []
        for number in range(batches):
            begin = time.process_time()
            rows = train[order[number * BATCH : (number + 1) * BATCH]]
            for _ in range(given.sweeps):
                h = (sigmoid(v @ w + c) > rng.random((BATCH, HIDDEN), dtype=np.float32)).astype(np.float32)
                v = (sigmoid(h @ w.T + b) > rng.random(v.shape, dtype=np.float32)).astype(np.float32)
            up, down = sigmoid(rows @ w + c), sigmoid(v @ w + c)
            w += rate / BATCH * (rows.T @ up - v.T @ down)
            b += rate * (rows.mean(axis=0) - v.mean(axis=0))
            c += rate * (up.mean(axis=0) - down.mean(axis=0))
            training += time.process_time() - begin
            if (number + 1) % every == 0:
                begin = time.process_time()
                point = watch.update((w, b, c, "binary"), step=epoch * batches + number + 1)
                watching += time.process_time() - begin
                if point is not None:
                    last = point
                    steps += point.annealing_steps
                    sources.append(point.source)
        fresh = sources.count("fresh")
        print(
            f"epoch {epoch + 1}: ln Z = {last.log_z:.2f} ± {last.stderr:.2f}, ln p = {last.log_p['rows']:.2f}; "
            f"{len(sources)} updates ({fresh} fresh) of {steps} steps; CPU seconds so far: training {training:.2f}, "
            f"watch {watching:.2f}, share {watching / (training + watching):.3f}",
            flush=True,
        )
    found = mg.estimate((w, b, c, "binary"), tolerance=0.3, threads=1, budget=60)
    print(f"mg.estimate of the last model: ln Z = {found.log_z:.2f} ± {found.stderr:.2f}")


if __name__ == "__main__":
    main()
