"""A client that uses every public name as documented; `tests/test_types.py` has type checkers read it. Never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped,unused-ignore]
import numpy as np

import marginalis as mg


def models(bqm: Any) -> list[mg.MRF]:
    w, b, c = np.ones((2, 3)), np.zeros(2), [0.0, 0.0, 0.0]
    graph: Any = nx.petersen_graph()
    return [
        mg.rbm(w, b, c, units=("spin", "binary"), temperature=0.5),
        mg.rbm([[1.0]], [0], [0]),
        mg.dbm([w, np.ones((3, 2))], [b, c, b], units="binary"),
        mg.ising_grid((4, 4), coupling=0.4, field=0.1, periodic=True, temperature=2.0),
        mg.ising_grid((3, 3), coupling=(np.ones((3, 3)), np.ones((3, 3))), triangular=False),
        mg.potts_grid((3, 3), 3, coupling=1.0, periodic=(True, False)),
        mg.potts([(0, 1), (1, 2)], 4, coupling=0.8, field=[0, 0, 0, 0.5]),
        mg.clock((4, 4), 6, coupling=1.0, field=0.1, periodic=True, temperature=2.0),
        mg.blume_capel([(0, 1), (1, 2)], coupling=[0.5, 1.0], crystal_field=0.5, field=[0.1, 0.0, 0.2]),
        mg.ashkin_teller((3, 3), coupling=1.0, four_spin=0.5, periodic=(True, False)),
        mg.hard_core(np.array([[0, 1], [1, 2]]), activity=2.0),
        mg.from_edges([("a", "b"), ("b", "c")], coupling=[1, -1], field=0.1),
        mg.from_matrix(np.zeros((5, 5)), field=0.1),
        mg.from_graph(graph, coupling="J", field=None, temperature=2.0),
        mg.from_bqm(bqm, temperature=1.5),
        mg.from_tables([[0.0, 0.1], [0.0, 0.2, 0.3]], {(0, 1): np.ones((2, 3))}),
        mg.as_model((w, b, c, "binary")),
        mg.rbm(w, b, c, units=("spin", mg.ReLU(2.0))),
        mg.rbm(w, b, c, units=("spin", mg.dReLU(1.0, 2.0))),
    ]


def factors() -> list[mg.FactorModel]:
    return [
        mg.from_factors([(("a", "b"), np.ones((2, 3)))], states={"c": 2}),
        mg.from_polynomial({("a", "b", "c"): 0.5, ("a",): -1.0}),
    ]


def door(model: mg.MRF) -> None:
    found: mg.FreeEnergy = mg.free_energy(model, tolerance=0.1, budget=60.0, seed=1)
    exact: bool = found.is_exact
    how: str = found.how
    low, high = found.interval
    print(float(found), exact, how, low, high, found.log_z, found.stderr, found.warnings, found.summary())
    weights = mg.Weights(np.array([0.1, 0.2, 0.3]), 1.0)
    print(weights.log_z, weights.interval_at(0.99))
    mean: mg.Average = mg.average(lambda seed: model, samples=3)
    print(mean.value, mean.stderr)
    watch = mg.Watch(rows=np.ones((3, 2)), tolerance=0.5)
    watch.update(model)
    history: mg.History = watch.history
    print(history.points)


def files(model: mg.MRF, path: Path) -> mg.MRF | mg.FactorModel:
    mg.save(model, path / "model.npz")
    for number, update in mg.load_updates("run.h5").items():
        print(number, update)
    return mg.load(str(path), evidence={2: 0})


def answers(model: mg.MRF) -> None:
    result: mg.Estimate = mg.estimate(
        model, method="mais", steps=100, chains=100, transition="gibbs", schedule="linear", base="uniform", seed=0,
        engine="auto", threads=None, progress=False, summed=None, resample=None, populations=20,
    )  # fmt: skip
    value: float = result.log_z + result.free_energy + result.free_energy_per_variable + result.stderr + result.ess
    low, high = result.interval
    told: tuple[str, ...] = result.warnings
    result.save("result.npz")
    both: mg.Estimate = result + mg.load_estimate("result.npz")
    low, high = both.interval_at(0.99)
    print(value, low, high, told, result.log_weights.mean(), sum([result, both]))
    curve = mg.estimate(model, record=True, base=mg.data_base(model, np.ones((3, 2)))).curve
    if curve is not None:
        kept: mg.Curve = curve
        print(kept.betas, kept.log_z)
    try:
        print(mg.exact_log_z(model) + 1.0)
    except mg.ModelTooLarge as error:
        print(error)
    bounds: mg.Bounds = mg.bound(model, steps=10)
    audit: mg.Audit = mg.audit(model, mg.sample(model, 50), steps=10)
    print(audit.beta, audit.verdict, mg.from_pgmpy, mg.to_arviz)
    print(bounds.lower <= bounds.upper, bounds.is_certified)
    difference: mg.Difference = mg.difference(model, model)
    print(difference.log_ratio, difference.interval)
    along: mg.Along = mg.along([model, model], steps=10)
    heat: mg.Thermodynamics = mg.thermodynamics(model, [0.5, 1.0], chains=10)
    print(along.log_z, heat.heat_capacity)
    score: mg.LogLikelihood = mg.log_likelihood(model, np.ones((3, 2)), result)
    scores: mg.LogLikelihoods = mg.log_likelihood(along, np.ones((3, 2)))
    print(score.mean, scores.mean)
    means: mg.Expectations = mg.expectations(model, lambda rows: rows.mean(axis=1), exact=False)
    drawn: mg.Samples = mg.sample(model, 10)
    print(means.means, drawn.rows, mg.states(model, drawn.rows))
    many: mg.Estimates = mg.estimate_many({"a": model, "b": model}, steps=10)
    print(many)
    report: mg.Report = mg.report(model, "report.html", steps=100)
    print(report)
    mg.plots.save(mg.plots.weights(result), "weights.png")


def mistakes(model: mg.MRF) -> None:
    """What checkers must find: an ignored error that is none is an error to them."""
    from marginalis import estimte  # type: ignore[attr-defined]  # noqa: F401

    mg.estimate(model, stpes=100)  # type: ignore[call-arg]
    mg.estimate(model, method="magic")  # type: ignore[arg-type]
