"""Objects of other packages as models: named arrays, fitted machines, graphs."""

import numpy as np
import pytest
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

import marginalis as mg

RNG = np.random.default_rng(2)
W, B, C = RNG.normal(size=(4, 3)), RNG.normal(size=4), RNG.normal(size=3)
WANTED = mg.exact_log_z(mg.rbm(W, B, C, units="binary"))


class Tensor:
    """What a tensor on a device that requires grad looks like: only `detach` and `cpu` make it an array."""

    def __init__(self, array):
        self._array = array

    def detach(self):
        return self

    def cpu(self):
        return self._array


class Module:
    def __init__(self, **arrays):
        self._arrays = arrays

    def state_dict(self):
        return self._arrays


@pytest.mark.parametrize(
    "state",
    [
        {"W": W, "a": B, "b": C},
        {"W": W.T, "a": B, "b": C},
        {"weight": W.T, "v_bias": B, "h_bias": C},
        {"weights": W, "vbias": B, "hbias": C},
        {"W": W, "b": B, "c": C},
        {"rbm.W": W, "rbm.v_bias": B, "rbm.h_bias": C, "rbm.step": np.array(3)},
        {"state_dict": {"W": W, "bv": B, "bh": C}, "epoch": 3},
        {"W": Tensor(W), "a": Tensor(B), "b": Tensor(C)},
        {"weight_matrix": W, "visible_bias": B, "hidden_bias": C},
    ],
)
def test_states_of_a_restricted_machine(state):
    for value in (state, Module(**state)):
        model = mg.as_model(value)
        assert model.visible_units.name == model.hidden_units.name == "binary"
        assert model.n_visible == 4
        assert mg.exact_log_z(value) == WANTED


def test_arrays_of_other_modules_are_left_alone():
    """Only the names under one prefix are a machine."""
    rbm = {"rbm.W": W, "rbm.v_bias": B, "rbm.h_bias": C}
    assert mg.exact_log_z({"head.weight": np.ones((4, 3)), "head.bias": C, **rbm}) == WANTED
    assert mg.exact_log_z({"optimizer": {"state": {0: {"W": W}}}, "model": {"W": W, "a": B, "b": C}}) == WANTED


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"head.weight": W, "rbm.v_bias": B, "rbm.h_bias": C}, "model has no weights under one prefix: looked for w, "),
        (
            {f"{x}.{name}": array for x in "pq" for name, array in (("W", W), ("a", B), ("b", C))},
            "model holds more than one machine, with the prefixes 'p', 'q'",
        ),
        (
            {"a": {"W": W, "a": B, "b": C}, "W": W, "vb": B, "hb": C},
            "more than one machine, with the prefixes 'a', 'no",
        ),
        ({"W": W, "weight": W, "a": B, "b": C}, "model holds more than one array of weights: W, weight; keep one"),
        ({"W": W, "_w": W, "a": B, "b": C}, "model holds more than one array of weights: W, _w"),
        ({"W": W, "a": B, "v_bias": B, "b": C}, "model holds more than one array of visible biases: a, v_bias"),
        ({"v_bias": B, "h_bias": C}, "model has no weights: looked for w, weight, weights, weight_matrix among v_bias"),
        ({"W": W, "h_bias": C}, "model has no visible biases: looked for a, v_bias, vbias"),
        ({"W": W, "a": B}, "model has no hidden biases: looked for b, h_bias"),
        ({"W": W, "a": C, "b": C}, r"shapes do not fit together: w \(4, 3\), a \(3,\), b \(3,\)"),
        ({"W": W[0], "a": B, "b": C}, "shapes do not fit together"),
        ({"W": W[:3], "a": C, "b": C}, r"w is square, and could be \|V\| x \|H\| or \|H\| x \|V\|: use rbm\("),
        ({"W": W * np.nan, "a": B, "b": C}, "w holds NaN"),
        ({}, "among nothing"),
    ],
)
def test_states_that_do_not_fit(state, problem):
    with pytest.raises(ValueError, match=problem):
        mg.estimate(state)


def test_a_graph_restricted_machine_has_the_sign_of_a_cost():
    edges = np.array([(0, 1), (1, 2), (2, 0), (2, 3)])
    h, j = RNG.normal(size=4), RNG.normal(size=4)
    state = {"_linear": h, "_quadratic": j, "_edge_idx_i": edges[:, 0], "_edge_idx_j": edges[:, 1], "_visible_idx": B}
    model = mg.from_edges(edges, coupling=-j, field=-h)
    assert mg.exact_log_z(state) == mg.exact_log_z(model)
    for side in ("visible_bias", "hidden_bias"):  # ln Z would not tell the sign of all fields at once
        assert np.array_equal(getattr(mg.as_model(state), side), getattr(model, side))
    module = Module(**state)
    module.nodes = ["a", "b", "c", "d"]
    assert mg.as_model(module).labels == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="must number the ends of 4 edges"):
        mg.as_model({**state, "_edge_idx_i": edges[:2, 0]})


def test_a_tuple_says_its_units():
    assert mg.exact_log_z((W, B, C, "binary")) == WANTED
    assert mg.exact_log_z((W, B, C, "spin")) == mg.exact_log_z(mg.rbm(W, B, C))
    assert mg.exact_log_z((W, B, C, ("spin", "binary"))) == mg.exact_log_z(mg.rbm(W, B, C, units=("spin", "binary")))
    with pytest.warns(UserWarning, match=r"model is a tuple without units: spins .* 'binary'"):
        assert mg.exact_log_z((W, B, C)) == mg.exact_log_z(mg.rbm(W, B, C))


def fitted():
    return BernoulliRBM(3, n_iter=2, random_state=0).fit(RNG.integers(0, 2, (20, 4)))


def test_a_part_of_a_machine_on_a_graph():
    with pytest.raises(
        ValueError, match="model has no edge_idx_i; a machine on a graph has linear, quadratic, edge_idx_i"
    ):
        mg.estimate({"_linear": np.ones(3), "_quadratic": np.ones(2)})


def test_scikit_learn(tmp_path):
    machine = fitted()
    wanted = mg.exact_log_z(machine)
    pipeline = Pipeline([("scale", MinMaxScaler()), ("rbm", machine)])
    assert mg.exact_log_z(pipeline) == wanted
    mg.save(machine, tmp_path / "m.npz")
    assert mg.exact_log_z(mg.load(tmp_path / "m.npz")) == wanted
    with pytest.raises(ValueError, match="pipeline that does not end in a fitted BernoulliRBM"):
        mg.estimate(Pipeline([("rbm", machine), ("scale", MinMaxScaler())]))


def test_graphs_and_quadratic_models():
    dimod, nx = pytest.importorskip("dimod"), pytest.importorskip("networkx")
    bqm = dimod.BinaryQuadraticModel({"a": 0.3, "b": -1.0}, {("a", "b"): 0.7}, 0.25, "SPIN")
    assert mg.exact_log_z(bqm) == mg.exact_log_z(mg.from_bqm(bqm))
    graph = nx.cycle_graph(5)
    assert mg.estimate(graph, steps=3, chains=5).log_z == mg.estimate(mg.from_graph(graph), steps=3, chains=5).log_z
    nx.set_edge_attributes(graph, 2.0, "weight")
    with pytest.raises(ValueError, match="but with 'weight'"):
        mg.estimate(graph)


def test_states_that_are_no_model_are_refused():
    with pytest.raises(ValueError, match=r"model is a list; it must be an MRF .*a networkx graph, .* or a torch state"):
        mg.estimate([W, B, C])


def test_modules_of_torch():
    torch = pytest.importorskip("torch")

    class RBM(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.W = torch.nn.Parameter(torch.tensor(W))
            self.a, self.b = torch.nn.Parameter(torch.tensor(B)), torch.nn.Parameter(torch.tensor(C))

    module = RBM()
    assert mg.exact_log_z(module) == mg.exact_log_z(module.state_dict()) == WANTED
    halves = {name: x.to(torch.bfloat16) for name, x in module.state_dict().items()}
    rounded = [x.float().numpy() for x in halves.values()]
    assert mg.exact_log_z(halves) == pytest.approx(mg.exact_log_z(mg.rbm(*rounded, units="binary")), rel=1e-14)


def test_the_machine_of_d_wave(tmp_path):
    torch = pytest.importorskip("torch")
    plugin = pytest.importorskip("dwave.plugins.torch.models")
    torch.manual_seed(3)
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
    fields = dict(zip("abcd", (0.5, -1.0, 0.25, 2.0), strict=True))
    machine = plugin.GraphRestrictedBoltzmannMachine("abcd", edges, linear=fields)
    every = torch.tensor([[1.0 - 2.0 * (k >> i & 1) for i in range(4)] for k in range(16)])
    wanted = float(torch.logsumexp(-machine(every), 0).detach())
    assert mg.exact_log_z(machine) == pytest.approx(wanted, rel=1e-5)
    assert mg.exact_log_z(machine.state_dict()) == pytest.approx(wanted, rel=1e-5)
    assert set(mg.as_model(machine).labels) == set("abcd")
    torch.save(machine.state_dict(), tmp_path / "machine.pt")
    assert mg.exact_log_z(mg.load(tmp_path / "machine.pt")) == pytest.approx(wanted, rel=1e-5)
