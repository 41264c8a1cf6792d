"""The class `MRF` of models: a Markov random field with its variables in two groups.

    E(v, h) = −(b·v + c·h + vᵀWh + ½vᵀLv + offset)/T,    P(v, h) = exp(−E(v, h))/Z

The hidden variables h are not coupled to each other, so that given v they can be summed out and drawn exactly. A
marginalized method needs no more (paper, section 3.1). On a bipartite graph the visible variables are not coupled to
each other either, L = 0: this is the paper's eq. RBM, and with one-hot features eq. bipartite_energy_k. On any other
graph h is an independent set of variables and v the rest, in the order in which a Gibbs sweep draws them in blocks (see
`arrange`). A Gaussian variable x adds −½γx² inside the bracket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..checks import bias_vector, coupling_matrix, frozen, positive, real_number
from ..display import sketch
from ..display.card import Displayed
from .conditions import held_at
from .describe import couplings, in_words
from .forms import (
    Coupling,
    Grid,
    Indices,
    Layers,
    Natural,
    SpinForm,
    Split,
    checked_labels,
    highest,
    natural_form,
    partial_spin_form,
    split_is_whole,
    sweep_blocks,
)
from .normalisable import check_normalisable
from .units import SPIN, Array, Units, parse_units

_ENOUGH = 10  # Fewer biases than this do not suggest a kind of unit.
_OFF = -2.0  # Below this bias a 0/1 unit is 1 with a probability of less than 12 %, a spin +1 with less than 2 %.
_MOSTLY = 0.6  # Fraction of the visible biases that are below `_OFF` in machines of 0/1 units trained on images.
_CANCELLED = 0.5  # A term cancels biases if the norm of their sum is less than this fraction of that of the biases.


@dataclass(frozen=True, eq=False, repr=False)
class MRF(Displayed):
    """Visible variables v, hidden variables h, and their couplings.

    Parameters
    ----------
    weights
        Couplings w_ij, |V| × |H|, as an array or as any ``scipy.sparse`` matrix, which stays sparse.
    visible_bias, hidden_bias
        Fields b_i and c_j.
    visible_units, hidden_units
        The kind of the variables of each side.
    temperature
        T > 0, which divides the whole energy.
    offset
        A constant added to the other terms, which changes F by −offset/T.
    split
        The caller's variables on each side; by default the visible variables come first.
    layout
        The shape of the graph if it is known, for the exact methods.
    lateral
        Symmetric couplings l_ij between the visible features of different variables; None on a bipartite graph.
    labels
        The caller's names of the variables, in the caller's order; by default their numbers.
    """

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    visible_units: Units = SPIN
    hidden_units: Units = SPIN
    temperature: float = 1.0
    offset: float = 0.0
    split: Split = None  # type: ignore[assignment]  # Set in __post_init__.
    layout: Grid | Layers | None = None
    lateral: Coupling | None = None
    labels: Sequence[Any] = None  # type: ignore[assignment]  # Set in __post_init__.
    natural: Natural = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        weights = self.weights
        if not (sp.issparse(weights) and weights.ndim == 2 and any(weights.shape)):
            weights = coupling_matrix(weights)
        # The biases are checked before a sparse matrix is used, since its shape alone may exceed the memory.
        set_(self, "visible_bias", bias_vector(self.visible_bias, weights.shape[0], "visible_bias", "rows"))
        set_(self, "hidden_bias", bias_vector(self.hidden_bias, weights.shape[1], "hidden_bias", "columns"))
        set_(self, "weights", coupling_matrix(weights) if sp.issparse(weights) else weights)
        for side in ("visible", "hidden"):
            set_(self, f"{side}_units", self._units_of(side))
        set_(self, "temperature", positive(self.temperature, "temperature"))
        set_(self, "offset", real_number(self.offset, "offset"))
        n, m = (getattr(self, f"{x}_units").variables(len(getattr(self, f"{x}_bias"))) for x in ("visible", "hidden"))
        if self.split is None:
            set_(self, "split", Split(np.arange(n), np.arange(n, n + m)))
        elif not split_is_whole(self.split, n, m):
            raise ValueError("split must number every variable once")
        sides = (np.array(side, dtype=np.int64) for side in (self.split.visible, self.split.hidden))
        set_(self, "split", Split(*map(frozen, sides)))
        set_(self, "lateral", self._checked_lateral())
        set_(self, "labels", checked_labels(self.labels, self.n_variables))
        set_(self, "natural", natural_form(self))
        check_normalisable(self)

    def __str__(self) -> str:
        return in_words(self)

    def _sketch(self) -> str:
        return sketch.histogram(couplings(self), about="couplings")

    def __reduce__(self) -> tuple[Any, ...]:
        """Build copies and unpickled models with the constructor, so that they are checked and read-only."""
        return MRF, tuple(getattr(self, x.name) for x in fields(self) if x.init)

    def _units_of(self, side: str) -> Units:
        """Return the units of a side, given as `Units` or as a word, checked against the number of features."""
        features, argument = len(getattr(self, f"{side}_bias")), f"{side}_units"
        units = parse_units(getattr(self, argument), features, argument=argument)
        units.check(features, argument)
        return units

    def _checked_lateral(self) -> Coupling | None:
        """Return the couplings between the visible features, checked, or None if there are none."""
        if self.lateral is None:
            return None
        matrix = coupling_matrix(self.lateral, "lateral")
        n = len(self.visible_bias)
        if matrix.shape != (n, n):
            raise ValueError(f"lateral has shape {matrix.shape}; it must be {(n, n)}, the visible features")
        links = sp.coo_array(matrix)
        rows, columns = links.coords
        if not links.data.any():
            return None
        owners = self.visible_units.owners(n)
        if (links.data[owners[rows] == owners[columns]] != 0).any():
            raise ValueError("lateral couples a variable with itself")
        if (abs(matrix - matrix.T) > 0).sum():
            raise ValueError("lateral is not symmetric")
        return matrix

    @property
    def is_bipartite(self) -> bool:
        """Whether the visible variables are not coupled to each other."""
        return self.lateral is None

    @property
    def has_terms(self) -> bool:
        """Whether there are products of three or more features (see `interacting`)."""
        return False

    @property
    def has_zeros(self) -> bool:
        """Whether some states are forbidden, which a model of factors may have."""
        return False

    @property
    def n_visible(self) -> int:
        """Number of visible variables, |V|."""
        return len(self.split.visible)

    @property
    def n_hidden(self) -> int:
        """Number of hidden variables, |H|."""
        return len(self.split.hidden)

    @property
    def n_variables(self) -> int:
        """Number of all variables, n = |V| + |H|."""
        return self.n_visible + self.n_hidden

    @property
    def is_sparse(self) -> bool:
        """Whether the couplings are stored as a sparse matrix."""
        return sp.issparse(self.weights)

    def at_temperature(self, temperature: float) -> MRF:
        """Return the same model at another temperature T, which divides the whole energy."""
        return replace(self, temperature=temperature)

    def transposed(self) -> MRF:
        """Return the same model with the two sides exchanged; mAIS-H is mAIS-V of this model."""
        if self.lateral is not None:
            raise ValueError("the model is not bipartite: its visible variables cannot be summed out")
        natural = self.natural
        weights = _transposed(self.weights)
        same = natural.weights is self.weights
        return of_checked(
            weights=weights,
            visible_bias=self.hidden_bias,
            hidden_bias=self.visible_bias,
            visible_units=self.hidden_units,
            hidden_units=self.visible_units,
            temperature=self.temperature,
            offset=self.offset,
            split=Split(self.split.hidden, self.split.visible),
            layout=self.layout,
            lateral=None,
            labels=self.labels,
            natural=Natural(
                weights if same else _transposed(natural.weights),
                natural.hidden_bias,
                natural.visible_bias,
                natural.hidden_units,
                natural.visible_units,
                natural.offset,
            ),
        )

    def given(self, held: Mapping[Any, Any]) -> MRF:
        """Return the model of the other variables when some variables are held at values, given by label.

        A spin is held at −1 or 1, a binary unit at 0 or 1, and a categorical variable at a state number. ln Z of the
        result is the logarithm of the sum over the remaining variables.
        """
        return held_at(self, held)

    def hidden_fields(self, v: Array) -> Array:
        """Return the fields of the hidden features, given rows of the visible ones."""
        return np.asarray(self.natural.hidden_bias + v @ self.natural.weights)

    def visible_fields(self, v: Array, h: Array) -> Array:
        """Return the fields of the visible features, each given all other variables."""
        fields = self.natural.visible_bias + h @ self.natural.weights.T
        return np.asarray(fields if self.natural.lateral is None else fields + v @ self.natural.lateral)

    def visible_exponent(self, v: Array) -> Array:
        """Return b·v + ½vᵀLv: −E/T without the terms of hidden variables, own terms such as −½γv², and the offset."""
        linear = v @ self.natural.visible_bias
        if self.natural.lateral is None:
            return np.asarray(linear)
        return np.asarray(linear + 0.5 * (v * (v @ self.natural.lateral)).sum(axis=1))

    @property
    def coupling_sizes(self) -> tuple[Any, Any]:
        """|W| and |L|: by how much features change the fields of others at most; None if there is no L."""
        natural = self.natural
        return abs(natural.weights), None if natural.lateral is None else abs(natural.lateral)

    def with_natural(self, weights: Coupling, b: Array, c: Array, lateral: Coupling | None) -> MRF:
        """Return the model of the same variables with other natural parameters, at temperature 1."""
        v, h = self.natural.visible_units, self.natural.hidden_units
        w = sp.csr_array(self.weights.shape) if weights is None else weights
        return MRF(w, b, c, v, h, split=self.split, lateral=lateral, labels=self.labels)

    def reversed_sweep(self) -> MRF:
        """Return the same model with the visible variables in the opposite order."""
        order = np.arange(self.n_visible)[::-1]
        at = self.visible_features(order)
        return replace(
            self,
            weights=self.weights[at],
            visible_bias=self.visible_bias[at],
            visible_units=self.visible_units.take(order),
            lateral=None if self.lateral is None else self.lateral[at][:, at],
            split=Split(self.split.visible[order], self.split.hidden),
        )

    def visible_features(self, variables: Indices) -> Indices:
        """Return the numbers of the features of these visible variables, in their order."""
        owners = self.visible_units.owners(len(self.visible_bias))
        starts, counts = np.searchsorted(owners, variables), np.bincount(owners, minlength=self.n_visible)[variables]
        return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())

    @cached_property
    def edges(self) -> Indices:
        """Pairs (visible, hidden) of variables with a nonzero coupling, each once."""
        links = sp.coo_array(self.weights)
        used = links.data != 0
        rows, columns = links.coords
        v = self.visible_units.owners(len(self.visible_bias))[rows[used]]
        h = self.hidden_units.owners(len(self.hidden_bias))[columns[used]]
        if self.n_variables == len(self.visible_bias) + len(self.hidden_bias):
            return np.stack([v, h], axis=1)
        return _once(v, h)

    @cached_property
    def lateral_edges(self) -> Indices:
        """Pairs i < j of visible variables that are coupled to each other, each once."""
        if self.lateral is None:
            return np.zeros((0, 2), dtype=np.int64)
        links = sp.coo_array(self.lateral)
        rows, columns = links.coords
        owners = self.visible_units.owners(len(self.visible_bias))
        used = links.data != 0
        i, j = owners[rows[used]], owners[columns[used]]
        i, j = i[i < j], j[i < j]
        return _once(i, j) if self.visible_units.is_one_hot else np.stack([i, j], axis=1).astype(np.int64)

    @property
    def n_edges(self) -> int:
        """Number of pairs of coupled variables."""
        return len(self.edges) + len(self.lateral_edges)

    @cached_property
    def sweep(self) -> tuple[Indices, ...]:
        """Blocks of visible variables without couplings inside, in the order in which a Gibbs sweep draws them.

        The variables are in the order of the sweep; a block ends before the first variable that is coupled to it.
        """
        n = self.n_visible
        if self.lateral is None:
            return (np.arange(n),)
        return sweep_blocks(self.lateral, self.visible_units.owners(len(self.visible_bias)), n)

    @property
    def n_features(self) -> int:
        """Number of features of all variables."""
        return len(self.visible_bias) + len(self.hidden_bias)

    def callers_features(self) -> tuple[Indices, Indices]:
        """Places of the visible and of the hidden features among all features in the caller's order."""
        counts = np.zeros(self.n_variables, dtype=np.int64)
        sides = (
            (self.split.visible, self.visible_units.owners(len(self.visible_bias))),
            (self.split.hidden, self.hidden_units.owners(len(self.hidden_bias))),
        )
        for variables, owners in sides:
            counts[variables] = np.bincount(owners, minlength=len(variables))
        starts = np.cumsum(counts) - counts
        v, h = (
            starts[variables][owners] + np.arange(len(owners)) - np.searchsorted(owners, owners)
            for variables, owners in sides
        )
        return v, h

    def in_callers_order(self, visible: Array, hidden: Array) -> Array:
        """Return values per feature of both sides in the caller's order, along the last axis."""
        found = np.empty((*visible.shape[:-1], self.n_features))
        v, h = self.callers_features()
        found[..., v], found[..., h] = visible, hidden
        return found

    def by_side(self, values: Array, argument: str) -> tuple[Array, Array]:
        """Split values per feature in the caller's order, along the last axis, into visible and hidden."""
        if values.shape[-1] != self.n_features:
            raise ValueError(f"{argument} has length {values.shape[-1]}; the model needs {self.n_features}")
        v, h = self.callers_features()
        return values[..., v], values[..., h]

    @cached_property
    def connected_parts(self) -> tuple[Indices, Indices, int]:
        """The number of the connected part of every visible and every hidden variable, and the number of parts."""
        n, m = self.n_visible, self.n_hidden
        if not self.is_sparse and self.weights.all():
            return np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64), 1
        v, h = self.edges.T
        i, j = self.lateral_edges.T
        ends = np.concatenate([v, i]), np.concatenate([h + n, j])
        graph = sp.csr_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(n + m, n + m))
        count, part = connected_components(graph, directed=False)
        return part[:n].astype(np.int64), part[n:].astype(np.int64), int(count)

    @property
    def is_connected(self) -> bool:
        """Whether both sides have variables, and all variables belong to one connected part."""
        return min(len(self.visible_bias), len(self.hidden_bias)) > 0 and self.connected_parts[2] == 1

    @property
    def spin_form(self) -> SpinForm | None:
        """The equivalent model of ±1 spins, or None if a side does not consist of two-state units."""
        if self.visible_units.values is None or self.hidden_units.values is None:
            return None
        return self.partial_spin_form

    @cached_property
    def partial_spin_form(self) -> SpinForm:
        """The equivalent model in which every two-state unit is a ±1 spin; other kinds do not change."""
        return partial_spin_form(self.natural)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark if the biases of a machine of spins look like those of 0/1 units, which are not the default.

        Two signs count. Most visible biases are far below zero, as after training on images with dark backgrounds. Or
        the biases cancel half of the sums of the weights, b_i ≈ −½ Σ_j w_ij, as those of 0/1 units do at zero field.
        """
        if self.layout is not None or not self.is_bipartite or (self.visible_units, self.hidden_units) != (SPIN, SPIN):
            return ()
        b, c = self.visible_bias, self.hidden_bias
        if min(len(b), len(c)) < _ENOUGH:
            return ()
        fields = ((b, self.weights @ np.ones(len(c))), (c, self.weights.T @ np.ones(len(b))))
        cancelled = all(np.linalg.norm(x + 0.5 * sums) < _CANCELLED * np.linalg.norm(x) for x, sums in fields)
        if not cancelled and (b < _OFF).mean() < _MOSTLY:
            return ()
        return (
            "the units are spins (-1 and +1), but the biases look like those of a machine of 0/1 units, which is made "
            "with units='binary'",
        )

    @cached_property
    def highest(self) -> float:
        """Upper bound of −E without the offset: the sum of the largest values of all terms; ∞ for Gaussians.

        It is never negative. Large penalties between binary units do not raise it.
        """
        return highest(self.natural)


def _once(i: Indices, j: Indices) -> Indices:
    """Return the different ones of some pairs (i, j), in ascending order."""
    width = int(j.max(initial=0)) + 1
    keys = np.unique(i.astype(np.int64) * width + j)
    return np.stack(np.divmod(keys, width), axis=1)


def of_checked(**values: Any) -> MRF:
    """Return the model with these values of all its fields, which are checked and read-only already."""
    model = object.__new__(MRF)
    model.__dict__.update(values)
    return model


def _transposed(weights: Coupling) -> Coupling:
    """Return the transpose of couplings as the constructor stores it."""
    return coupling_matrix(weights.T) if sp.issparse(weights) else frozen(np.ascontiguousarray(weights.T))
