"""The one door to F: exact where that is affordable, estimated to the tolerance otherwise; any model is taken."""

import json
import logging
import math
import time

import dimod
import networkx as nx
import numpy as np
import pytest
from conftest import command, random_rbm
from sklearn.neural_network import BernoulliRBM

import marginalis as mg
from marginalis.answers import free_energy as module
from marginalis.exact import ModelTooLarge, Prediction
from marginalis.models.factors import FactorModel


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def too_large(*args, **options):
    raise ModelTooLarge("2^99 states")


def slow(seconds):
    """Return a prediction of an exact sum that takes so many seconds, which its `run` does not."""

    def predicted(model, **options):
        found = mg_predicted(model, threads=options["threads"])
        ways = [(name, way._replace(seconds=seconds)) for name, way in found.ways]
        return Prediction(ways, found.offset, found.threads, time.perf_counter())

    mg_predicted = module.predicted
    return predicted


def models(rng, folder):
    w, b, c = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    rbm = mg.rbm(w, b, c)
    graph = nx.cycle_graph(5)
    nx.set_edge_attributes(graph, 0.5, "coupling")
    path = folder / "m.npz"
    mg.save(rbm, path)
    (folder / "m.uai").write_text("MARKOV 3 2 2 2 1 3 0 1 2 8 1 2 3 4 5 6 7 8\n")
    scikit = BernoulliRBM(3, n_iter=2, random_state=0).fit(rng.integers(0, 2, (20, 5)))
    table = rng.normal(size=(2, 2, 2))
    table[0, 0, 0] = -math.inf
    return {
        "model": rbm,
        "path": path,
        "text": str(path),
        "uai": folder / "m.uai",
        "tuple": (w, b, c, "binary"),
        "scikit-learn": scikit,
        "networkx": graph,
        "dimod": dimod.BinaryQuadraticModel({0: 1.0, 1: -0.5}, {(0, 1): 0.7}, 0.3, "SPIN"),
        "factors": FactorModel((2, 2, 2), ((0, 1, 2),), (table,)),
        "torch": {"W": w, "a": b, "b": c},
        "gaussian": mg.rbm(0.1 * w, b, c, units="gaussian"),
        "dbm": mg.dbm([w, w.T], [b, c, b]),
    }


KINDS = ["model", "path", "text", "uai", "tuple", "scikit-learn", "networkx", "dimod", "factors", "torch"]
KINDS += ["gaussian", "dbm"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_summed_exactly(rng, tmp_path, kind):
    model = models(rng, tmp_path)[kind]
    found = mg.free_energy(model)
    loaded = mg.load(model) if kind in ("path", "text", "uai") else model
    assert found.is_exact
    assert found.log_z == pytest.approx(float(mg.exact_log_z(loaded)), rel=1e-12)
    assert found.free_energy == -found.log_z == float(found)
    assert found.interval == found.interval_at(0.5) == (found.free_energy,) * 2
    assert found.log_z_interval == (found.log_z,) * 2
    assert (found.stderr, found.warnings) == (0.0, ())
    assert found.how.startswith("exact, by ")
    assert found.summary() == str(found)
    assert found.plot().axes


def test_what_cannot_be_summed_is_estimated_to_the_tolerance(rng, monkeypatch):
    model = random_rbm(rng, 5, 6)
    exact = mg.exact_log_z(model)
    monkeypatch.setattr(module, "predicted", too_large)
    found = mg.free_energy(model, tolerance=0.1, engine="numpy", seed=4)
    assert not found.is_exact
    assert (found.interval[1] - found.interval[0]) / 2 <= 0.1
    assert abs(found.log_z - exact) < 4.5 * found.stderr
    assert found.estimate == mg.estimate(model, tolerance=0.1, engine="numpy", seed=4)
    assert found.how == f"estimated by mAIS-V with {found.estimate.chains} chains of {found.estimate.steps} steps; " + (
        "95 % interval"
    )
    assert found.warnings == found.estimate.warnings
    assert found.plot().axes


def test_the_faster_of_sum_and_estimate_is_chosen(rng, monkeypatch):
    """An exact sum of an hour is not waited for where a trial of the estimate reaches the tolerance; one of 2 s is."""
    model = random_rbm(rng, 5, 6)
    for seconds, exact in ((0.5, True), (2.0, True), (3000.0, False)):
        monkeypatch.setattr(module, "predicted", slow(seconds))
        assert mg.free_energy(model, 0.1, engine="numpy").is_exact == exact
        monkeypatch.undo()
    monkeypatch.setattr(module, "predicted", slow(50.0))
    assert mg.free_energy(model, 0.1, budget=60.0, engine="numpy").is_exact
    monkeypatch.undo()
    monkeypatch.setattr(module, "predicted", slow(40.0))  # a trial of 4 s does not reach this, nor would 40 s
    monkeypatch.setattr(module, "_TRIAL", 0.01)
    assert mg.free_energy(model, 1e-7, engine="numpy").is_exact


def test_a_trial_that_may_take_as_long_as_the_prediction_is_not_made(rng, monkeypatch):
    """A network whose reduction takes seconds would be reduced again for the trial."""
    predicted = slow(20.0)

    def slowly(model, **options):
        begun = time.thread_time()
        while time.thread_time() - begun < 0.05:
            pass
        return predicted(model, **options)

    model = random_rbm(rng, 5, 6)
    monkeypatch.setattr(module, "_LEAST_TRIAL", 0.0)
    monkeypatch.setattr(module, "_TRIAL", 0.002)  # 0.04 s
    monkeypatch.setattr(module, "predicted", slowly)
    assert mg.free_energy(model, 10.0, engine="numpy").is_exact
    monkeypatch.setattr(module, "predicted", predicted)
    assert not mg.free_energy(model, 10.0, engine="numpy").is_exact


def test_no_estimate_is_tried_where_solutions_are_counted(rng, monkeypatch):
    """The predicted time is then a limit, and a tenth of it may be longer than the count."""

    def counted(model, **options):
        found = predicted(model, **options)
        return Prediction([("counting", found.ways[0][1])], found.offset, found.threads, found.begun)

    predicted = slow(3000.0)
    model = random_rbm(rng, 5, 6)
    monkeypatch.setattr(module, "predicted", counted)
    assert mg.free_energy(model, 10.0, engine="numpy").is_exact
    monkeypatch.setattr(module, "predicted", predicted)
    assert not mg.free_energy(model, 10.0, engine="numpy").is_exact


def test_a_bad_number_of_threads_is_an_error_before_the_sum(rng, caplog):
    with caplog.at_level(logging.INFO, "marginalis"), pytest.raises(ValueError, match="threads is 0"):
        mg.free_energy(random_rbm(rng, 5, 6), threads=0)
    assert not caplog.records


def test_a_budget_that_an_exact_sum_exceeds_is_left_to_the_estimate(rng):
    model = random_rbm(rng, 40, 40)
    missed = mg.free_energy(model, 1e-6, budget=0.2, engine="numpy")
    assert not missed.is_exact
    assert any("the budget of 0.2 s ran out" in warning for warning in missed.warnings)


def test_a_sum_that_rounding_may_spoil_is_estimated(rng, monkeypatch):
    def spoiled(self, progress):
        raise ValueError("ln Z cannot be computed to 1e-09")

    monkeypatch.setattr(Prediction, "run", spoiled)
    assert not mg.free_energy(random_rbm(rng, 3, 4), 0.2, engine="numpy").is_exact
    with pytest.raises(ValueError, match="cannot be computed"):
        mg.free_energy(FactorModel((2, 2), ((0, 1),), (np.array([[0.0, -math.inf], [1.0, 2.0]]),)))


def test_the_error_for_too_many_factors_gives_both_reasons(monkeypatch):
    monkeypatch.setattr(module, "predicted", too_large)
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = -math.inf
    with pytest.raises(ModelTooLarge, match=r"2\^99 states; and there is no estimate: "):
        mg.free_energy(FactorModel((2, 2, 2), ((0, 1, 2),), (table,)))


@pytest.mark.parametrize("bad", [0, -1, math.nan, "x", None, 1j])
def test_bad_tolerances_and_budgets_are_refused_also_where_the_sum_is_exact(rng, bad):
    model = random_rbm(rng, 2, 2)
    with pytest.raises(ValueError, match="tolerance is"):
        mg.free_energy(model, bad)
    if bad is not None:
        with pytest.raises(ValueError, match="budget is"):
            mg.free_energy(model, budget=bad)
    with pytest.raises(ValueError, match="no option 'chains' here"):
        mg.free_energy(model, chains=10)


def test_the_log_names_the_method_that_is_tried(rng, monkeypatch, caplog):
    model = random_rbm(rng, 5, 6)
    with caplog.at_level(logging.INFO, "marginalis"):
        monkeypatch.setattr(module, "predicted", slow(2.0))
        mg.free_energy(model, 0.1, engine="numpy")
        assert "summing exactly, by a sum over 2^5 states x 6 units: about 2 s" in caplog.text
        monkeypatch.undo()
        monkeypatch.setattr(module, "predicted", too_large)
        mg.free_energy(model, 0.1, engine="numpy")
    assert "no exact sum: 2^99 states" in caplog.text
    assert "estimating to ± 0.1" in caplog.text


def test_a_bare_tuple_is_a_machine_of_spins_and_a_warning_says_so(rng):
    w, b, c = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    with pytest.warns(
        UserWarning, match=r"without units: spins .* give \(weights, visible_bias, hidden_bias, 'binary'"
    ):
        found = mg.free_energy((w, b, c))
    assert found.log_z == float(mg.exact_log_z(mg.rbm(w, b, c)))


def test_biases_like_those_of_a_machine_of_zeros_and_ones_get_a_remark(rng):
    w = rng.normal(size=(30, 12))
    dark, small = rng.normal(-4.0, 1.0, 30), rng.normal(size=12)
    moved = -0.5 * w.sum(axis=1), -0.5 * w.sum(axis=0)
    for model in (mg.rbm(w, dark, small), mg.rbm(w, *moved)):
        (remark,) = mg.free_energy(model).remarks
        assert "units='binary'" in remark
        assert remark in mg.estimate(model, steps=5, chains=20, engine="numpy").remarks
        assert f"note: {remark}" in str(mg.free_energy(model))
    for model in (
        mg.rbm(w, rng.normal(size=30), small),
        mg.rbm(w, np.zeros(30), np.zeros(12)),
        mg.rbm(w[:5], dark[:5], small),
    ):
        assert not mg.free_energy(model).remarks
    for units in ("binary", ("spin", "binary")):
        assert not mg.free_energy(mg.rbm(w, dark, small, units=units)).remarks


def test_every_answer_about_ln_z_has_f_too(rng):
    """F comes before ln Z in texts, and behind it in plain data."""
    a, b = random_rbm(rng, 3, 4), random_rbm(rng, 3, 4)
    few = {"steps": 20, "chains": 50, "engine": "numpy"}
    estimate = mg.estimate(a, record=True, **few)
    answers = [
        estimate, estimate.weights, estimate.curve, mg.free_energy(a), mg.exact_log_z(a), mg.bound(a, **few),
        mg.along([a, b], **few), mg.estimate_many([a, b], **few), mg.thermodynamics(a, [1.0], **few),
        mg.expectations(a, **few),
    ]  # fmt: skip
    for answer in answers:
        assert np.array_equal(answer.free_energy, -np.asarray(answer.log_z)), type(answer)
        plain = answer.to_dict() if hasattr(answer, "to_dict") else {}
        for row in (plain, *plain.get("rows", ())):
            if "log_z" in row:
                assert row["free_energy"] == -row["log_z"], type(answer)
    for answer in answers[:-2]:
        text = answer.summary()
        assert 0 <= text.replace("ln Z(0)", "").find("F") < text.find("ln Z"), text
    for answer in (estimate, estimate.weights, answers[3], answers[5]):
        assert float(answer) == answer.free_energy
    assert float(mg.difference(a, b, **few)) == mg.difference(a, b, **few).log_ratio
    data = np.ones((2, 3))
    assert float(mg.log_likelihood(a, data)) == mg.log_likelihood(a, data).mean


def test_the_free_energy_command(tmp_path, rng):
    model = random_rbm(rng, 4, 5)
    mg.save(model, tmp_path / "m.npz")
    done = command("free-energy", tmp_path / "m.npz", "--json", "--plot", tmp_path / "p.png", "--pr", tmp_path / "m.PR")
    found = json.loads(done.stdout)
    assert found["exact"] is True
    assert found["log_z"] == pytest.approx(float(mg.exact_log_z(model)))
    names = {"free_energy", "free_energy_per_variable", "stderr", "interval", "how", "method", "seconds", "warnings"}
    assert names <= set(found)
    assert done.stderr == ""
    assert (tmp_path / "p.png").exists()
    log10 = float((tmp_path / "m.PR").read_text().split()[1])
    assert log10 == pytest.approx(found["log_z"] / math.log(10.0))
    text = command("free-energy", tmp_path / "m.npz").stdout.splitlines()
    assert text[0].startswith("F = ")
    assert text[0].endswith("(exact)")
    assert text[1].startswith("ln Z = ")
    assert text[2].startswith("exact, by a sum over 2^4 states")


def test_the_command_takes_networks_that_no_estimate_can(tmp_path):
    (tmp_path / "m.uai").write_text("MARKOV 3 2 2 2 2 3 0 1 2 1 0 8 0 2 3 4 5 6 7 8 2 1 1\n")
    (tmp_path / "m.evid").write_text("1 0 1\n")
    found = json.loads(command("free-energy", tmp_path / "m.uai", "--evidence", tmp_path / "m.evid", "--json").stdout)
    assert found["log_z"] == pytest.approx(math.log(5 + 6 + 7 + 8))


def test_flags_strict_and_quiet(tmp_path, rng):
    path = tmp_path / "m.npz"
    mg.save(random_rbm(rng, 4, 5), path)
    cautious = command("estimate", path, "--steps", 1, "--chains", 20, "--strict", "--json", "--engine", "numpy")
    assert cautious.returncode == 3
    assert json.loads(cautious.stdout)["warnings"]
    assert command("estimate", path, "--steps", 20, "--chains", 500, "--strict").returncode == 0
    assert command("free-energy", path, "--strict").returncode == 0
    noisy, quiet = (command("estimate", path, "--tolerance", 0.1, *flags) for flags in ((), ("--quiet",)))
    assert "pilot" in noisy.stderr
    assert quiet.stderr == ""
    assert quiet.stdout.splitlines()[:2] == noisy.stdout.splitlines()[:2]


@pytest.mark.parametrize("ending", ["npz", "uai"])
def test_temperatures_of_the_command_line(tmp_path, rng, ending):
    model = random_rbm(rng, 4, 5)
    path = tmp_path / f"m.{ending}"
    mg.save(model, path)
    for flags, temperature in ((("--temperature", 2.5), 2.5), (("--beta", 4.0), 0.25)):
        found = json.loads(command("free-energy", path, "--json", *flags).stdout)
        expected = mg.exact_log_z(mg.rbm(model.weights, model.visible_bias, model.hidden_bias, temperature=temperature))
        assert found["log_z"] == pytest.approx(float(expected))
    for flags in (("--beta", 0), ("--beta", "inf"), ("--temperature", -1), ("--beta", 1, "--temperature", 1)):
        done = command("free-energy", path, *flags)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_estimates_name_a_faster_exact_sum(rng):
    model = random_rbm(rng, 10, 40)
    long = mg.estimate(model, steps=4000, chains=8000)
    assert any("an exact sum takes less than a millisecond: mg.free_energy(model)" in x for x in long.remarks)
    assert not mg.estimate(model, steps=10, chains=100).remarks
