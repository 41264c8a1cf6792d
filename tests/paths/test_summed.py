"""Which variables are summed out, as the caller says."""

import networkx as nx
import pytest

import marginalis as mg
from marginalis.models.arrange import rearrange


class TestSummed:
    graph = nx.relabel_nodes(nx.wheel_graph(7), dict(enumerate("abcdefg")))
    model = mg.from_graph(graph)

    def test_any_independent_set(self):
        exact = mg.exact_log_z(self.model)
        for chosen in (["b", "d", "f"], ["c"], ["a"], ("b", "e")):
            result = mg.estimate(self.model, summed=chosen, steps=60, chains=3000, seed=1)
            assert abs(result.log_z - exact) < 4.5 * result.stderr
            arranged = rearrange(self.model, chosen)
            assert {arranged.labels[i] for i in arranged.split.hidden} == set(chosen)
            assert mg.exact_log_z(arranged) == pytest.approx(exact, rel=1e-12)

    def test_on_a_bipartite_graph(self):
        grid = mg.ising_grid((3, 4), coupling=0.4, field=0.1)
        exact = mg.exact_log_z(grid)
        for chosen in ([0, 2, 8], [1, 3, 4, 6, 9, 11], [0, 6]):
            result = mg.estimate(grid, summed=chosen, steps=60, chains=3000, seed=1)
            assert abs(result.log_z - exact) < 4.5 * result.stderr

    @pytest.mark.parametrize(
        ("summed", "message"),
        [
            (["a", "c"], "summed is not an independent set: a - c is an edge"),
            (["b", "x"], "summed names 'x', which is no label"),
            (["b", "b"], "names a variable twice"),
            ([], "summed is empty"),
            ("b", "it must be a list of labels"),
            (3, "it must be a list of labels"),
            ([["b"]], "which is no label"),
        ],
    )
    def test_dependent_sets_and_unknown_labels_are_refused(self, summed, message):
        with pytest.raises(ValueError, match=message):
            mg.estimate(self.model, summed=summed, steps=5, chains=5)

    def test_sides_are_for_bipartite_graphs(self):
        with pytest.raises(ValueError, match="method 'mais-h' names a side"):
            mg.estimate(self.model, method="mais-h", steps=5, chains=5)
        with pytest.raises(ValueError, match="leave out one of them"):
            mg.estimate(self.model, method="mais-v", summed=["b"], steps=5, chains=5)
        with pytest.raises(ValueError, match="bipartite graphs only"):
            mg.estimate(self.model, transition="metropolis", steps=5, chains=5)
