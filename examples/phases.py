"""Where the states lie that different starts find, and what a path finds of each phase: a figure, in some seconds.

The model has 14 planted features. Most of them are phases of their own, and the weight of every phase is known exactly.
Left: the share of states in each phase after short Gibbs runs from several starts, beside the exact share. Right: for
every phase c the estimate of Z_c/Z along two paths. E[W·1(x ∈ c)] = Z_c/Z_0 holds on every path, so a path that misses
a phase finds less of Z. Writes demo/phases.png, or the file that is named as argument.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.special import expit, logsumexp

import marginalis as mg
from marginalis.studies.hard_families import prototypes

SHOWN = 15  # Phases in the figure.
SWEEPS, STATES = 100, 2000
STRENGTH, SEED = 1.0, 5


def exact_phases(model: mg.MRF) -> tuple[np.ndarray, np.ndarray]:
    """Return the heaviest states of the features, and the exact probability of each."""
    n = model.n_hidden
    h = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    fields = model.visible_bias + h @ model.weights.T
    log_weights = h @ model.hidden_bias + np.logaddexp(fields, -fields).sum(axis=1)
    p = np.exp(log_weights - logsumexp(log_weights))
    best = np.argsort(-p)[:SHOWN]
    return h[best], p[best]


def sweeps(model: mg.MRF, hidden: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the states of the features after Gibbs sweeps of the model."""
    h = hidden.astype(float)
    for _ in range(SWEEPS):
        v = np.where(
            rng.random((len(h), model.n_visible)) < expit(2 * (model.visible_bias + h @ model.weights.T)), 1, -1
        )
        h = (rng.random(h.shape) < expit(model.hidden_bias + v @ model.weights)).astype(float)
    return h


def shares(found: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """Return the share of the states in each phase."""
    return (found[:, None, :] == phases).all(axis=2).mean(axis=0)


def seen(share: np.ndarray) -> np.ndarray:
    """Return the shares with NaN in the place of 0, which is not drawn."""
    return np.where(share > 0, share, np.nan)


def along(model: mg.MRF, phases: np.ndarray, exact: float, **options) -> tuple[np.ndarray, mg.Estimate]:
    """Return the estimates of Z_c/Z of the phases along one path, and the estimate of Z."""

    def inside(states: np.ndarray) -> np.ndarray:
        return (states[:, None, model.n_visible :] == phases).all(axis=2).astype(float)

    answer = mg.expectations(model, {"phases": inside}, exact=False, moves=1, **options)
    return answer.functions["phases"] * np.exp(answer.estimate.log_z - exact), answer.estimate


def main(path: Path) -> None:
    model = prototypes(STRENGTH, SEED)
    exact = mg.exact_log_z(model)
    phases, p = exact_phases(model)
    rng = np.random.default_rng(0)
    starts = {
        "random features": rng.random((STATES, model.n_hidden)) < 0.5,
        "all features on": np.ones((STATES, model.n_hidden)),
        "all features off": np.zeros((STATES, model.n_hidden)),
        "0 to 100 % of them on": rng.random((STATES, model.n_hidden)) < np.linspace(0, 1, STATES)[:, None],
    }
    found = {name: shares(sweeps(model, hidden, rng), phases) for name, hidden in starts.items()}
    paths = {"steps=1000": along(model, phases, exact, steps=1000), "default call": along(model, phases, exact)}

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, panels = mg.plots.figure(1, 2, (9.6, 3.8))
    place = np.arange(SHOWN)
    for axes in panels[0]:
        axes.bar(place, p, color="0.85", label="exact")
        axes.set_yscale("log")
        axes.set_ylim(2e-4, 30)
        axes.set_xticks(place, place + 1)
        axes.set_xlabel("phase, by its weight")
    for (name, share), mark in zip(found.items(), "o^vs", strict=True):
        panels[0, 0].plot(place, seen(share), mark, ms=5, label=name)
    panels[0, 0].set_ylabel("share of the states")
    panels[0, 0].set_title(f"{SWEEPS} sweeps from different starts")
    for (name, (share, estimate)), mark in zip(paths.items(), "os", strict=True):
        error = estimate.log_z - exact
        panels[0, 1].plot(place, seen(share), mark, ms=5, label=f"{name}: error of ln Z {error:+.2f}")
        print(f"{name:14} error of ln Z {error:+.3f} ± {estimate.stderr:.3f}, warnings: {len(estimate.warnings)}")
    panels[0, 1].set_ylabel("estimate of Z_c / Z")
    panels[0, 1].set_title("what a path finds of each phase")
    for axes in panels[0]:
        axes.legend(fontsize="small", ncols=2, loc="upper right")
    mg.plots.save(figure, path)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/phases.png"))
