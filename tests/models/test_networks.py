"""Models of pgmpy: their tables are the model, and the edges of the graph are not."""

import itertools
import warnings
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

import marginalis as mg

RNG = np.random.default_rng(4)


class Network(nx.Graph):
    """A Markov network as pgmpy has them, without pgmpy."""

    def __init__(self, edges, tables, **more):
        super().__init__(edges)
        self.factors = [
            SimpleNamespace(variables=list(scope), cardinality=np.array(values.shape), values=values, state_names=names)
            for scope, values, names in tables
        ]
        self.__dict__.update(more)


def a_table(*shape):
    return RNG.uniform(0.1, 2.0, shape)


AB, BC = a_table(2, 3), a_table(3, 2)


def the_network(**more):
    return Network([("a", "b"), ("b", "c")], [(("a", "b"), AB, {}), (("c", "b"), BC.T, {})], **more)


def test_every_function_reads_the_tables_of_a_network():
    wanted = np.log(np.einsum("ab,bc->", AB, BC))
    network = the_network()
    assert mg.exact_log_z(network) == pytest.approx(wanted, rel=1e-13)
    assert mg.exact_log_z(mg.as_model(network)) == pytest.approx(wanted, rel=1e-13)
    estimate = mg.estimate(network, steps=100, chains=500)
    assert abs(estimate.log_z - wanted) < 4.5 * estimate.stderr
    means = mg.expectations(network)
    assert means.marginals[0] == pytest.approx(np.einsum("ab,bc->a", AB, BC) / np.exp(wanted), rel=1e-12)
    with pytest.raises(ValueError, match="which is defined by its tables and not by its edges: use from_pgmpy"):
        mg.from_graph(network)


def test_evidence_by_name_or_number():
    names = {"a": ["no", "yes"], "b": ["low", "mid", "high"], "c": [0, 1]}
    network = Network([("a", "b"), ("b", "c")], [(("a", "b"), AB, names), (("c", "b"), BC.T, names)])
    held = mg.from_pgmpy(network, {"a": "yes", "c": 0})
    assert mg.exact_log_z(held) == pytest.approx(np.log(AB[1] @ BC[:, 0]), rel=1e-13)
    for evidence, problem in (
        ({"a": "maybe"}, "evidence holds 'a' in the state 'maybe'; it has no, yes"),
        ({"q": 1}, "evidence names the variable 'q', which the model does not have"),
        ({"c": 2}, "the state of 'c' in evidence is 2; it must be at most 1"),
    ):
        with pytest.raises(ValueError, match=problem):
            mg.from_pgmpy(network, evidence)


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (Network([("a", "b")], []), "is a Network without tables"),
        (Network([("a", "b")], [(("a",), AB[0], {})]), "model has no table with the variable 'b'"),
        (Network([("a", "b")], [(("a", "b"), -AB, {})]), r"the table of \(a, b\) holds values that are negative"),
        (Network([("a", "b")], [(("a", "b"), 0 * AB, {})]), r"Z = 0: the table of \(a, b\) holds zeros only"),
        (
            Network([("a", "b")], [(("a", "b"), AB, {}), (("a",), AB[0], {})]),
            "disagree about the states of the variable 'a'",
        ),
        (Network([("a", "b")], [(("a", "b"), AB, {"a": [0, 1]}), (("a",), AB[:, 0], {"a": [1, 0]})]), "disagree about"),
    ],
)
def test_networks_that_are_refused(network, problem):
    for door in (mg.exact_log_z, mg.estimate, mg.from_pgmpy):
        with pytest.raises(ValueError, match=problem):
            door(network)


def test_conditional_densities_are_refused_by_name():
    graph = nx.DiGraph([("a", "b")])
    graph.cpds = [SimpleNamespace(variable="a", beta=[1.0])]
    with pytest.raises(ValueError, match="only tables of discrete variables can be read"):
        mg.estimate(graph)
    with pytest.raises(ValueError, match="it must be a Markov network, factor graph or Bayesian network"):
        mg.from_pgmpy(nx.path_graph(3))


def test_polynomials_of_dimod():
    dimod = pytest.importorskip("dimod")
    terms = {("a", "b", "c"): 1.5, ("a",): -1.0, ("c", "b"): 0.3, (): 0.5}
    for vartype, values in (("SPIN", (-1, 1)), ("BINARY", (0, 1))):
        polynomial = dimod.BinaryPolynomial(terms, vartype)
        states = [dict(zip("abc", x, strict=True)) for x in itertools.product(values, repeat=3)]
        wanted = np.logaddexp.reduce([-polynomial.energy(x) for x in states])
        assert mg.exact_log_z(polynomial) == pytest.approx(wanted, rel=1e-13)
    pairs = dimod.BinaryPolynomial({("a", "b"): 0.5, ("b",): -0.2}, "SPIN")
    assert mg.as_model(pairs).labels == ("a", "b")
    assert mg.exact_log_z(pairs) == pytest.approx(mg.exact_log_z(mg.from_bqm(dimod.make_quadratic(pairs, 9.0, "SPIN"))))
    with pytest.raises(ValueError, match="a term joins 21 variables; at most 20 fit a table"):
        mg.exact_log_z(dimod.BinaryPolynomial({tuple(range(21)): 1.0}, "SPIN"))


def test_models_that_pgmpy_made():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pgmpy")
        from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork, FactorGraph

        network = DiscreteMarkovNetwork([("a", "b"), ("b", "c"), ("c", "a")])
        tables = [DiscreteFactor(["a", "b"], [2, 3], AB), DiscreteFactor(["c", "b"], [2, 3], BC.T)]
        tables.append(DiscreteFactor(["a", "c"], [2, 2], a_table(2, 2)))
        network.add_factors(*tables)
        wanted = np.log(network.get_partition_function())
        factor_graph = FactorGraph()
        factor_graph.add_nodes_from(["a", "b", "c", *tables])
        factor_graph.add_factors(*tables)
        factor_graph.add_edges_from([(label, table) for table in tables for label in table.scope()])
        junction = network.to_junction_tree()
        bayes = DiscreteBayesianNetwork([("rain", "wet"), ("tap", "wet")])
        names = {"rain": ["yes", "no"], "tap": ["on", "off"], "wet": ["dry", "wet"]}
        bayes.add_cpds(
            TabularCPD("rain", 2, [[0.2], [0.8]], state_names={"rain": names["rain"]}),
            TabularCPD("tap", 2, [[0.6], [0.4]], state_names={"tap": names["tap"]}),
            TabularCPD("wet", 2, [[0.1, 0.2, 0.3, 1.0], [0.9, 0.8, 0.7, 0.0]], ["rain", "tap"], [2, 2], names),
        )
    for model in (network, factor_graph, junction):
        assert mg.exact_log_z(model) == pytest.approx(wanted, rel=1e-12)
    assert mg.exact_log_z(bayes) == pytest.approx(0.0, abs=1e-12)
    p = {"yes": 0.2, "no": 0.8, "on": 0.6, "off": 0.4}
    wet = dict(zip(itertools.product(("yes", "no"), ("on", "off")), (0.9, 0.8, 0.7, 0.0), strict=True))
    total = sum(p[r] * p[t] * x for (r, t), x in wet.items())
    assert mg.exact_log_z(mg.from_pgmpy(bayes, {"wet": "wet"})) == pytest.approx(np.log(total), rel=1e-12)
