"""How well does an RBM know handwritten digits while it is being trained? ln p of train and test rows over epochs.

scikit-learn has the 8×8 digits; training is persistent contrastive divergence (Tieleman 2008), in NumPy. One population
of chains is carried through all checkpoints (`mg.along`); exact values, which 20 hidden units allow, stand beside it,
and what separate runs of the same errors would cost: the more, the smoother the training is. Writes demo/training.png,
or the file that is named as argument; takes some seconds.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import marginalis as mg

EPOCHS = range(10, 201, 10)
Parameters = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights, visible and hidden biases of 0/1 units


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 64 black or white pixels: four fifths to train on, one fifth to test."""
    train, test = train_test_split(load_digits().data > 8, test_size=0.2, random_state=0)  # pixels from 0 to 16
    return train, test


def pcd(
    rows: np.ndarray, hidden: int, epochs: int, *, rate: float, batch: int = 100, sweeps: int = 1, seed: int = 0
) -> Iterator[Parameters]:
    """Train an RBM by persistent contrastive divergence; yield its parameters before the first and after every epoch.

    The learning rate falls to zero over the second half, so that the noise of the gradients dies out.
    """
    rng = np.random.default_rng(seed)
    x = rows.astype(np.float32)
    p = (x.sum(axis=0) + 1) / (len(x) + 2)  # one count is added, so that no pixel is impossible
    w = rng.normal(0, 0.01, (x.shape[1], hidden)).astype(np.float32)
    b, c = np.log(p / (1 - p)), np.zeros(hidden, np.float32)
    v = x[rng.choice(len(x), batch, replace=False)]  # the persistent chains

    def on(fields: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-fields))

    def draw(means: np.ndarray) -> np.ndarray:
        return (rng.random(means.shape, np.float32) < means).astype(np.float32)

    yield w.copy(), b.copy(), c.copy()
    for epoch in range(epochs):
        step = rate * min(1.0, 2 * (1 - epoch / epochs))
        order = rng.permutation(len(x))
        for first in range(0, len(x) - batch + 1, batch):
            data = x[order[first : first + batch]]
            h_data = on(data @ w + c)
            for _ in range(sweeps):
                v = draw(on(draw(on(v @ w + c)) @ w.T + b))
            h = on(v @ w + c)
            w += step / batch * (data.T @ h_data - v.T @ h)
            b += step * (data.mean(axis=0) - v.mean(axis=0))
            c += step * (h_data.mean(axis=0) - h.mean(axis=0))
        yield w.copy(), b.copy(), c.copy()


def main(path: Path) -> None:
    train, test = digits()
    every = dict(enumerate(pcd(train, 20, EPOCHS[-1], rate=0.05, batch=200)))
    models = {epoch: mg.rbm(*every[epoch], units="binary") for epoch in EPOCHS}
    run = mg.along(models, chains=2000)
    on_train, on_test = (mg.log_likelihood(run, rows) for rows in (train, test))
    exact = np.array([mg.exact_log_z(model) for model in models.values()])
    exact_test = on_test.unnormalised.mean(axis=1) - exact

    print(f"Mean ln p in nats of {len(train)} rows to train on and {len(test)} to test; all from one run.\n")
    print("epoch     train      test   95 % interval from ln Z      exact")
    for t, epoch in enumerate(EPOCHS):
        low, high = on_test.intervals[t]
        means = f"{on_train.mean[t]:9.3f} {on_test.mean[t]:9.3f}"
        print(f"{epoch:5d} {means}    {low:8.3f} to {high:8.3f}   {exact_test[t]:8.3f}")
    inside = (on_test.intervals[:, 0] <= exact_test) & (exact_test <= on_test.intervals[:, 1])
    print(
        f"\nThe interval holds the exact value at {inside.sum()} of {len(EPOCHS)} checkpoints.", *run.warnings, sep="\n"
    )

    # a run for each checkpoint, with the steps and chains that its error takes
    goals = np.diff(run.intervals, axis=1)[:, 0] / 2
    apart = [mg.estimate(m, tolerance=goal) for m, goal in zip(models.values(), goals, strict=True)]
    together, separate = run.chains * run.steps, sum(r.chains * r.steps for r in apart)
    share = together / separate
    print(
        f"Steps of all chains: {together:,} in one run, {separate:,} in separate runs of the same errors: {share:.2f}."
    )

    path.parent.mkdir(exist_ok=True)
    figure, panels = mg.plots.figure(1, 1, (6.4, 4.2))
    axes = mg.plots.likelihoods({"train": on_train, "test": on_test}, ax=panels[0, 0])
    axes.plot(EPOCHS, exact_test, "kx", ms=4, label="exact")
    axes.plot(EPOCHS, on_train.unnormalised.mean(axis=1) - exact, "kx", ms=4)
    axes.set_xlabel("epoch")
    axes.legend()
    mg.plots.save(figure, path)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/training.png"))
