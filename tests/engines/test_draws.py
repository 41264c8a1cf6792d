"""Other streams of random numbers: the reference draws every kind of unit by them, and no run mixes two."""

import json

import networkx as nx
import numpy as np
import pytest
from conftest import command, log_weights, random_rbm, z_score

import marginalis as mg
from marginalis.engines.plan import make_plan
from marginalis.engines.reference import loop
from marginalis.options import DRAWS

OTHERS = DRAWS[1:]


def rng():
    return np.random.default_rng(1)


def couplings(units, **options):
    return mg.rbm(0.5 * rng().normal(size=(4, 5)), np.full(4, 0.2), np.zeros(5), units=units, **options)


KINDS = {
    "graph": (mg.from_edges(list(nx.wheel_graph(7).edges), coupling=0.6), {}),
    "ais": (couplings("binary"), {"method": "ais"}),
    "metropolis": (couplings("spin"), {"transition": "metropolis", "sweeps": 2}),
    "categorical": (mg.potts(list(nx.wheel_graph(6).edges), 3, coupling=0.7), {}),
    "gaussian": (couplings(("gaussian", "spin")), {"base": "uniform"}),
    "resampled": (couplings("spin"), {"resample": 1.0, "populations": 500}),
    "mixture": (couplings("spin"), {"base": "quenches"}),
}


@pytest.mark.parametrize("draws", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_unit_has_the_exact_mean(kind, draws):
    model, options = KINDS[kind]
    result = mg.estimate(model, steps=8, chains=2000, seed=2, draws=draws, engine="numpy", **options)
    assert abs(z_score(np.exp(result.log_z0 + result.log_weights - mg.exact_log_z(model)), 1.0)) < 4.5


@pytest.mark.parametrize("draws", OTHERS)
def test_same_bits_for_any_threads_and_split(draws, monkeypatch):
    """Planes hold 32 chains each, which a split need not respect."""
    model = random_rbm(np.random.default_rng(2), 5, 9)
    options = dict(steps=8, seed=4, draws=draws, engine="numpy")
    whole = mg.estimate(model, chains=150, threads=1, **options)
    monkeypatch.setattr(loop, "_CHUNK", 17)
    assert np.array_equal(whole.log_weights, mg.estimate(model, chains=150, threads=3, **options).log_weights)
    parts = [mg.estimate(model, chains=n, first_chain=at, **options) for at, n in ((0, 37), (37, 1), (38, 112))]
    assert np.array_equal(whole.log_weights, (parts[0] + parts[1] + parts[2]).log_weights)


@pytest.mark.parametrize("draws", OTHERS)
def test_an_engine_that_does_not_serve_a_stream_says_so(draws):
    model = mg.from_tables(rng().normal(size=(3, 3)), {(0, 1): np.eye(3), (1, 2): np.eye(3)})
    auto = make_plan(model, steps=3, chains=4, draws=draws)
    assert auto.placement.engine == "numpy"
    for engine in ("numba", "cuda"):
        with pytest.raises(
            ValueError, match=f"engine '{engine}' supports only draws='words' .* not '{draws}'; use 'auto'"
        ):
            make_plan(model, steps=3, chains=4, draws=draws, engine=engine)
    assert not np.array_equal(log_weights(auto, "auto"), log_weights(make_plan(model, steps=3, chains=4), "numpy"))


def test_a_path_from_a_mixture_goes_to_the_reference(plans):
    model = couplings("spin")
    mg.estimate(model, steps=4, chains=20, base="quenches", draws="planes")
    assert plans[-1].path.mixture is not None
    assert {plan.placement.draws for plan in plans} == {"planes"}
    assert plans[-1].placement.engine == "numpy"


def test_second_opinions_have_kernels(plans, monkeypatch):
    monkeypatch.setattr("marginalis.planning.search.soon", lambda *ignored: None)
    mg.estimate(mg.ising_grid((4, 4), coupling=0.3, periodic=True), draws="planes", chains=100)
    asked = [plan for plan in plans if plan.path.mixture is not None]
    assert {(plan.placement.draws, plan.placement.engine) for plan in asked} == {("words", "numba")}
    assert plans[-1].placement.draws == "planes"


def test_runs_of_two_streams_are_not_mixed(tmp_path):
    model = couplings("spin")
    options = dict(steps=4, chains=40, seed=1)
    usual, other = (mg.estimate(model, draws=draws, **options) for draws in ("words", "planes"))
    more = mg.estimate(model, first_chain=40, **options)
    with pytest.raises(ValueError, match="one has draws='planes', the other 'words'"):
        other + more
    assert "draws" not in json.loads(usual.to_json()) | usual.record.to_plain()
    assert json.loads(other.to_json())["draws"] == "planes"
    other.save(tmp_path / "other.npz")
    assert mg.load_estimate(tmp_path / "other.npz") == other
    assert mg.load_estimate(tmp_path / "other.npz").record.draws == "planes"
    assert "draws by planes" in str(other)
    mg.estimate(model, checkpoint=tmp_path / "run", **options)
    with pytest.raises(ValueError, match="draws was None, is 'planes'"):
        mg.estimate(model, checkpoint=tmp_path / "run", draws="planes", **options)


def test_command_line(tmp_path):
    model = couplings("spin")
    mg.save(model, tmp_path / "m.npz")
    words = ["estimate", tmp_path / "m.npz", "--steps", 4, "--chains", 40, "--json"]
    done = command(*words, "--draws", "planes", "--out", tmp_path / "r.npz")
    assert json.loads(done.stdout)["draws"] == "planes"
    assert json.loads(done.stdout)["log_z"] == mg.estimate(model, steps=4, chains=40, draws="planes").log_z
    assert command(*words, "--out", tmp_path / "s.npz", "--first-chain", 40).returncode == 0
    joined = command("join", tmp_path / "r.npz", tmp_path / "s.npz")
    assert joined.returncode == 2
    assert "one has draws='planes', the other 'words'" in joined.stderr
