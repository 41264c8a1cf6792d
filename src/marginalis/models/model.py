"""The one class of model: a Markov random field, its variables in two groups.

    E(v, h) = −(b·v + c·h + vᵀWh + ½vᵀLv + offset)/T,    P(v, h) = exp(−E(v, h))/Z

The hidden variables h are not coupled to each other, so that given v they can be summed out and drawn exactly: all
that a marginalized method asks for (paper, section 3.1). On a bipartite graph the visible ones are not coupled
either, L = 0: the paper's eq. RBM, and with one-hot features its general bipartite energy, eq. bipartite_energy_k.
On any other graph h is an independent set of variables and v the rest, block by block in the order in which a
Gibbs sweep draws them (see `arrange`). A Gaussian variable x adds −½γx² inside the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh, svds

from ..checks import (
    LARGEST,
    bias_vector,
    coupling_matrix,
    frozen,
    precision_vector,
    real_array,
    real_number,
    shown,
)
from .units import SPIN, Array, Categorical, Gaussian, TwoState, Units, parse_units

Coupling = Any  # a float64 array or a scipy.sparse.csr_array
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Which of the caller's variables went to which side: their numbers, in the order of the side."""

    visible: Indices
    hidden: Indices


@dataclass(frozen=True)
class Grid:
    """The variables, in the caller's order, are the sites of a rectangular lattice, row-major."""

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]
    triangular: bool = False  # with diagonals from (r, c) to (r + 1, c + 1)


@dataclass(frozen=True)
class Layers:
    """The variables, in the caller's order, are layers of these sizes, each coupled to the next."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MRF:
    """Visible variables v, hidden variables h, and their couplings.

    Parameters
    ----------
    weights
        Coupling w_ij, |V| × |H|: an array, or any ``scipy.sparse`` matrix, which stays sparse.
    visible_bias, hidden_bias
        Fields b_i and c_j.
    visible_units, hidden_units
        The kind of the variables of each side.
    temperature
        T > 0, divides the whole energy.
    offset
        A constant beside the other terms: it moves F by −offset/T.
    split
        Where the caller's variables went; by default the visible ones come first.
    layout
        What is known about the shape of the graph, for the exact methods.
    lateral
        Coupling l_ij among the visible features, symmetric, no variable with itself; None on a bipartite graph.
    labels
        The caller's names of the variables, in the caller's order; their numbers by default.
    """

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    visible_units: Units = SPIN
    hidden_units: Units = SPIN
    temperature: float = 1.0
    offset: float = 0.0
    split: Split = None  # type: ignore[assignment]  # settled below
    layout: Grid | Layers | None = None
    lateral: Coupling | None = None
    labels: Sequence[Any] = None  # type: ignore[assignment]  # settled below
    natural: Natural = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        weights = self.weights
        if not (sp.issparse(weights) and weights.ndim == 2 and any(weights.shape)):
            weights = coupling_matrix(weights)
        # the biases before a sparse matrix is touched: it may claim a shape that would fill the memory
        set_(self, "visible_bias", bias_vector(self.visible_bias, weights.shape[0], "visible_bias", "rows"))
        set_(self, "hidden_bias", bias_vector(self.hidden_bias, weights.shape[1], "hidden_bias", "columns"))
        set_(self, "weights", coupling_matrix(weights) if sp.issparse(weights) else weights)
        for side in ("visible", "hidden"):
            set_(self, f"{side}_units", self._units_of(side))
        set_(self, "temperature", real_number(self.temperature, "temperature"))
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature!r}; it must be positive")
        set_(self, "offset", real_number(self.offset, "offset"))
        if self.split is None:
            n = self.n_visible
            set_(self, "split", Split(np.arange(n), np.arange(n, n + self.n_hidden)))
        elif not self._split_is_whole():
            raise ValueError("split must number every variable once")
        sides = (np.array(side, dtype=np.int64) for side in (self.split.visible, self.split.hidden))
        set_(self, "split", Split(*map(frozen, sides)))
        set_(self, "lateral", self._checked_lateral())
        set_(self, "labels", self._checked_labels())
        set_(self, "natural", self._natural())
        self._check_normalisable()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and models from another process, are built as any other: checked and read-only."""
        return MRF, tuple(getattr(self, x.name) for x in fields(self) if x.init)

    def _units_of(self, side: str) -> Units:
        """Return the units of a side, given as such or by their word, after a look at their number."""
        features, argument = len(getattr(self, f"{side}_bias")), f"{side}_units"
        units = parse_units(getattr(self, argument), features, argument=argument)
        if isinstance(units, Categorical):
            units.counts(features)
        if isinstance(units, Gaussian):
            if len(units.precision) != features:
                raise ValueError(f"{argument}: there are {len(units.precision)} precisions for {features} variables")
            if not all(math.isfinite(x) and x > 0 for x in units.precision):
                raise ValueError(f"{argument}: precisions must be positive and finite")
        return units

    def _split_is_whole(self) -> bool:
        if not isinstance(self.split, Split):
            return False
        sides, n = [np.asarray(side) for side in (self.split.visible, self.split.hidden)], self.n_variables
        if [side.shape for side in sides] != [(self.n_visible,), (self.n_hidden,)]:
            return False
        if any(len(side) and side.dtype.kind not in "iu" for side in sides):
            return False
        seen = np.zeros(n, dtype=bool)
        for side in sides:
            if len(side) and (side.min() < 0 or side.max() >= n):
                return False
            seen[side.astype(np.int64)] = True
        return bool(seen.all())

    def _checked_lateral(self) -> Coupling | None:
        """Return the coupling among the visible features, or None if there is none."""
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

    def _checked_labels(self) -> Sequence[Any]:
        if self.labels is None:
            return range(self.n_variables)
        labels = self.labels if isinstance(self.labels, range) else tuple(self.labels)
        if len(labels) != self.n_variables:
            raise ValueError(f"there are {len(labels)} labels for {self.n_variables} variables")
        if not isinstance(labels, range) and len(set(labels)) < len(labels):
            seen: set[Any] = set()
            twice = next(x for x in labels if x in seen or seen.add(x))  # type: ignore[func-returns-value]
            raise ValueError(f"label {twice!r} is given twice")
        return labels

    def _natural(self) -> Natural:
        t = self.temperature

        def over(x: Any) -> Any:
            with np.errstate(over="ignore"):
                scaled = x if t == 1.0 else x / t
            if not np.isfinite(scaled.data if sp.issparse(scaled) else scaled).all():
                raise ValueError(f"temperature is {t!r}: the parameters divided by it overflow")
            return frozen(scaled) if np.ndim(scaled) or sp.issparse(scaled) else scaled

        with np.errstate(over="ignore"):
            units = self.visible_units.at_temperature(t), self.hidden_units.at_temperature(t)
        for side in units:
            if isinstance(side, Gaussian) and not (np.isfinite(side.gamma).all() and (side.gamma > 0).all()):
                raise ValueError(f"temperature is {t!r}: the precisions divided by it overflow or vanish")
        w, b, c, offset = (over(x) for x in (self.weights, self.visible_bias, self.hidden_bias, self.offset))
        lateral = None if self.lateral is None else over(self.lateral)
        with np.errstate(over="ignore"):
            size = abs(w)
            among = 0.0 if lateral is None else np.asarray(abs(lateral).sum(axis=1)).ravel()
            if not float(size.sum()) + float(np.sum(among)) < LARGEST:
                raise ValueError("weights are so large that their sums overflow")
            for bias, axis, side, other in ((b, 1, units[0], units[1]), (c, 0, units[1], units[0])):
                reach = abs(bias)
                if isinstance(side, Gaussian):  # ln Z holds its field squared; discrete variables are at most 1
                    reach = reach if isinstance(other, Gaussian) else reach + np.asarray(size.sum(axis=axis)).ravel()
                    reach = np.maximum(reach, reach**2 / side.gamma)
                if not float(reach.sum()) < LARGEST:
                    word = "visible" if axis else "hidden"
                    raise ValueError(
                        f"{word}_bias is so large that ln Z overflows, with the couplings if it is Gaussian"
                    )
        if not abs(offset) < LARGEST:
            raise ValueError(f"offset is {self.offset!r}: with the temperature {t!r} it is too large")
        return Natural(w, b, c, *units, offset, lateral)

    def _check_normalisable(self) -> None:
        if self.lateral is not None:
            if isinstance(self.visible_units, Gaussian) and not _is_positive_definite(*self._gaussian_precision()):
                raise ValueError(
                    "the couplings make this Gaussian model not normalisable: the matrix of precisions less couplings "
                    "must be positive definite"
                )
            return
        if isinstance(self.visible_units, Gaussian) and isinstance(self.hidden_units, Gaussian):
            size = _largest_singular_value(self.weights, self.visible_units.gamma, self.hidden_units.gamma)
            if not size < 1.0:
                raise ValueError(
                    "weights make this Gaussian model not normalisable: the largest singular value of "
                    f"w_ij/√(γ_i γ_j) is {size:.6g}; it must be below 1"
                )

    def _gaussian_precision(self) -> tuple[Array, Any]:
        """Return the precisions and the couplings of all Gaussian variables; the visible ones are."""
        assert isinstance(self.visible_units, Gaussian)
        if not isinstance(self.hidden_units, Gaussian):
            return self.visible_units.gamma, sp.csr_array(self.lateral)
        w = sp.csr_array(self.weights)
        gamma = np.concatenate([self.visible_units.gamma, self.hidden_units.gamma])
        return gamma, sp.csr_array(sp.block_array([[sp.csr_array(self.lateral), w], [w.T, None]]))

    @property
    def is_bipartite(self) -> bool:
        """Whether the visible variables are not coupled to each other, either."""
        return self.lateral is None

    @property
    def n_visible(self) -> int:
        """Number of visible variables, |V|."""
        return self.visible_units.variables(len(self.visible_bias))

    @property
    def n_hidden(self) -> int:
        """Number of hidden variables, |H|."""
        return self.hidden_units.variables(len(self.hidden_bias))

    @property
    def n_variables(self) -> int:
        """Number of all variables, n = |V| + |H|."""
        return self.n_visible + self.n_hidden

    @property
    def is_sparse(self) -> bool:
        """Whether the coupling is stored as a sparse matrix."""
        return sp.issparse(self.weights)

    def transposed(self) -> MRF:
        """Return the same model with the names of the two sides exchanged: mAIS-H is mAIS-V of this."""
        if self.lateral is not None:
            raise ValueError("the model is not bipartite: its visible variables cannot be summed out")
        return MRF(
            self.weights.T,
            self.hidden_bias,
            self.visible_bias,
            self.hidden_units,
            self.visible_units,
            self.temperature,
            self.offset,
            Split(self.split.hidden, self.split.visible),
            self.layout,
            labels=self.labels,
        )

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
        """Pairs (visible, hidden) of variables with a coupling that is not zero, each once."""
        links = sp.coo_array(self.weights)
        used = links.data != 0
        rows, columns = links.coords
        v = self.visible_units.owners(len(self.visible_bias))[rows[used]]
        h = self.hidden_units.owners(len(self.hidden_bias))[columns[used]]
        if self.n_variables == len(self.visible_bias) + len(self.hidden_bias):
            return np.stack([v, h], axis=1)
        return np.unique(np.stack([v, h], axis=1), axis=0)

    @cached_property
    def lateral_edges(self) -> Indices:
        """Pairs i < j of visible variables that are coupled to each other, each once."""
        if self.lateral is None:
            return np.zeros((0, 2), dtype=np.int64)
        links = sp.coo_array(self.lateral)
        rows, columns = links.coords
        owners = self.visible_units.owners(len(self.visible_bias))
        pairs = np.stack([owners[rows], owners[columns]], axis=1)[links.data != 0].astype(np.int64)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        return np.unique(pairs, axis=0) if isinstance(self.visible_units, Categorical) else pairs

    @property
    def n_edges(self) -> int:
        """Number of pairs of coupled variables."""
        return len(self.edges) + len(self.lateral_edges)

    @cached_property
    def sweep(self) -> tuple[Indices, ...]:
        """The visible variables in the blocks in which a Gibbs sweep draws them; no couplings inside a block.

        The order of the variables is that of the sweep: a block ends where the next variable is coupled to it.
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

    def by_side(self, values: Array, argument: str) -> tuple[Array, Array]:
        """Split what is given per feature in the caller's order, along the last axis, in visible and hidden."""
        if values.shape[-1] != self.n_features:
            raise ValueError(f"{argument} has length {values.shape[-1]}; the model needs {self.n_features}")
        v, h = self.callers_features()
        return values[..., v], values[..., h]

    @cached_property
    def connected_parts(self) -> tuple[Indices, Indices, int]:
        """The connected part of every visible and of every hidden variable, and the number of parts."""
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
    def spin_form(self) -> SignedForm | None:
        """The equivalent model of ±1 spins, or None if a side is not made of two-state units."""
        two_states = isinstance(self.visible_units, TwoState) and isinstance(self.hidden_units, TwoState)
        return self.signed_form if two_states else None

    @cached_property
    def signed_form(self) -> SignedForm:
        """The equivalent model in which every two-state unit is a ±1 spin; other kinds stay as they are."""
        (v_offset, v_scale), (h_offset, h_scale) = (
            (units.offset, units.scale) if isinstance(units, TwoState) else (0.0, 1.0)
            for units in (self.visible_units, self.hidden_units)
        )
        w, b, c = self.natural.weights, self.natural.visible_bias, self.natural.hidden_bias
        scale = v_scale * h_scale
        lateral, inside = self.natural.lateral, np.zeros(len(b))
        with np.errstate(over="ignore", invalid="ignore"):  # then its size is not finite, and nobody takes it
            rows = np.asarray(w.sum(axis=1)).ravel() if h_offset else np.zeros(len(b))
            columns = np.asarray(w.sum(axis=0)).ravel() if v_offset else np.zeros(len(c))
            constant = v_offset * total(b) + h_offset * total(c) + v_offset * total(h_offset * rows)
            if lateral is not None and v_offset:
                among = np.asarray(lateral.sum(axis=1)).ravel()
                inside = v_offset * among
                constant += 0.5 * v_offset**2 * total(among)
            return SignedForm(
                weights=w if scale == 1.0 else w * scale,
                visible_bias=v_scale * (b + h_offset * rows + inside),
                hidden_bias=h_scale * (c + v_offset * columns),
                constant=constant,
                lateral=lateral if lateral is None or v_scale == 1.0 else lateral * v_scale**2,
                visible=(v_offset, v_scale),
                hidden=(h_offset, h_scale),
            )

    @cached_property
    def highest(self) -> float:
        """A bound of −E from above, offset left out: the sum of the largest values of all terms; ∞ for Gaussians.

        It is never negative. Binary units that exclude each other have a low one, however large the penalty.
        """
        v, h = self.visible_units, self.hidden_units
        if isinstance(v, Gaussian) or isinstance(h, Gaussian):
            return math.inf
        signed = [isinstance(side, TwoState) and side.offset == 0.0 for side in (v, h)]
        w, lateral = self.natural.weights, self.natural.lateral
        terms = (
            (self.natural.visible_bias, signed[0]),
            (self.natural.hidden_bias, signed[1]),
            (w.data if sp.issparse(w) else w, any(signed)),
            (0.5 * (np.zeros(0) if lateral is None else lateral.data if sp.issparse(lateral) else lateral), signed[0]),
        )
        with np.errstate(over="ignore"):
            return float(sum((np.abs(x) if both else np.maximum(x, 0.0)).sum() for x, both in terms))


def total(values: Array) -> float:
    """Return the sum without rounding on the way, infinite where that overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Natural:
    """Parameters of the exponent itself: everything divided by the temperature."""

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    visible_units: Units
    hidden_units: Units
    offset: float
    lateral: Coupling | None = None


@dataclass(frozen=True)
class SignedForm:
    """Natural parameters in ±1 spins; −E of the original model, offset aside, is theirs plus `constant`.

    A visible unit is visible[0] + visible[1]·spin, and likewise a hidden one.
    """

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    constant: float
    lateral: Coupling | None = None
    visible: tuple[float, float] = (0.0, 1.0)
    hidden: tuple[float, float] = (0.0, 1.0)

    @cached_property
    def size(self) -> float:
        """The sizes of all terms added up: what is computed from them is good to about 2^-52 of it."""
        w = self.weights.data if sp.issparse(self.weights) else self.weights
        lateral = np.zeros(0) if self.lateral is None else self.lateral
        half = 0.5 * np.asarray(lateral.data if sp.issparse(lateral) else lateral)
        with np.errstate(over="ignore", invalid="ignore"):
            terms = [np.abs(x).sum() for x in (w, half, self.visible_bias, self.hidden_bias, self.constant)]
        return float(sum(terms))

    def transposed(self) -> SignedForm:
        """Exchange the sides of a bipartite model."""
        return SignedForm(
            self.weights.T, self.hidden_bias, self.visible_bias, self.constant, None, self.hidden, self.visible
        )


def rbm(
    weights: ArrayLike | Any,
    visible_bias: ArrayLike,
    hidden_bias: ArrayLike,
    *,
    units: str | Sequence[str] = "spin",
    temperature: float = 1.0,
    visible_precision: ArrayLike | None = None,
    hidden_precision: ArrayLike | None = None,
) -> MRF:
    """Restricted Boltzmann machine with weights of shape |V| × |H|.

    `units` is one word or a pair (visible, hidden): ``"spin"`` (−1, +1), ``"binary"`` (0, 1),
    ``"categorical:q"`` (one-hot: q rows or columns of the weights, and q biases, per variable) or
    ``"gaussian"`` with precision γ (1 by default).
    """
    pair = (units, units) if isinstance(units, str) else tuple(units) if isinstance(units, list | tuple) else ()
    if len(pair) != 2:
        raise ValueError(f"units is {shown(units)}; it must be one word or a pair (visible, hidden)")
    b, c = real_array(visible_bias, "visible_bias", 1), real_array(hidden_bias, "hidden_bias", 1)
    return MRF(
        weights,
        b,
        c,
        parse_units(pair[0], len(b), precision_vector(visible_precision, len(b), "visible_precision"), "visible units"),
        parse_units(pair[1], len(c), precision_vector(hidden_precision, len(c), "hidden_precision"), "hidden units"),
        temperature,
    )


def as_model(value: Any, argument: str = "model") -> MRF:
    """Return `value` as a model, or raise a ValueError that names the argument.

    `value` is a model already; a fitted scikit-learn ``BernoulliRBM``, or anything else with its
    ``components_`` (|H| × |V|), ``intercept_visible_`` and ``intercept_hidden_``; or a tuple (weights of shape
    |V| × |H|, visible_bias, hidden_bias). The latter two have 0/1 units.
    """
    if isinstance(value, MRF):
        return value
    fitted = ("components_", "intercept_visible_", "intercept_hidden_")
    if all(hasattr(value, name) for name in fitted):
        components, b, c = (real_array(getattr(value, name), f"{argument}.{name}", None) for name in fitted)
        return rbm(components.T, b, c, units="binary")
    if isinstance(value, tuple) and len(value) == 3:
        return rbm(*value, units="binary")
    raise ValueError(
        f"{argument} is a {type(value).__name__}; it must be a MRF (see rbm, load), a fitted BernoulliRBM "
        "or a tuple (weights, visible_bias, hidden_bias)"
    )


def dbm(
    weights: Sequence[ArrayLike],
    biases: Sequence[ArrayLike],
    *,
    units: str = "binary",
    temperature: float = 1.0,
) -> MRF:
    """Deep Boltzmann machine: layers x_0, x_1, … of spins or binaries, W_l between x_l and x_{l+1}.

    E = −(Σ_l b_l·x_l + Σ_l x_lᵀ W_l x_{l+1})/T. Its even layers are one side of a bipartite graph, its odd
    layers the other.
    """
    if not all(isinstance(x, list | tuple) for x in (weights, biases)):
        raise ValueError("weights and biases must be lists: one matrix between layers, one vector per layer")
    if len(weights) < 1 or len(biases) != len(weights) + 1:
        raise ValueError(f"weights has {len(weights)} layers of weights and biases {len(biases)}: need one more bias")
    b = [real_array(x, f"biases[{i}]", 1) for i, x in enumerate(biases)]
    w: list[Array] = []
    for i, given in enumerate(weights):
        x: Any = given if sp.issparse(given) else real_array(given, f"weights[{i}]", 2)
        if x.shape != (len(b[i]), len(b[i + 1])):
            raise ValueError(f"weights[{i}] has shape {x.shape}; the biases want {(len(b[i]), len(b[i + 1]))}")
        w.append(coupling_matrix(x, f"weights[{i}]").toarray() if sp.issparse(x) else x)
    if not isinstance(units, str) or units not in ("spin", "binary"):
        raise ValueError(f"units is {shown(units)}; a DBM has spin or binary units")
    even, odd = range(0, len(b), 2), range(1, len(b), 2)
    blocks = [
        [w[i] if j == i + 1 else w[j].T if j == i - 1 else None for j in odd]  # coupled layers differ by one
        for i in even
    ]
    ends = np.cumsum([len(x) for x in b])
    numbers = [np.arange(end - len(x), end) for x, end in zip(b, ends, strict=True)]
    kind = parse_units(units, 0)
    return MRF(
        w[0]
        if len(w) == 1
        else sp.csr_array(sp.block_array(blocks))
        if len(odd) > 1
        else np.concatenate([r[0] for r in blocks]),
        np.concatenate([b[i] for i in even]),
        np.concatenate([b[i] for i in odd]),
        kind,
        kind,
        temperature,
        split=Split(np.concatenate([numbers[i] for i in even]), np.concatenate([numbers[i] for i in odd])),
        layout=Layers(tuple(len(x) for x in b)),
    )


def sweep_blocks(lateral: Coupling, owners: Indices, n: int) -> tuple[Indices, ...]:
    """Cut the visible variables 0 … n−1 into consecutive blocks without couplings inside, each as long as can be."""
    rows, columns = sp.coo_array(lateral).coords
    i, j = owners[rows], owners[columns]
    last = np.full(n, -1, dtype=np.int64)  # the last one before each variable that it is coupled to
    np.maximum.at(last, j[i < j], i[i < j])
    starts = [0]
    for at in range(n):
        if last[at] >= starts[-1]:
            starts.append(at)
    return tuple(np.split(np.arange(n), starts[1:]))


def _is_positive_definite(gamma: Array, couplings: Any) -> bool:
    """Whether diag(γ) less the couplings is positive definite, by the lowest eigenvalue of it over √(γ_i γ_j)."""
    scaled = sp.csr_array(couplings) * (gamma**-0.5)[:, None] * gamma**-0.5
    if scaled.shape[0] <= 2000:
        top = float(np.linalg.eigvalsh(scaled.toarray())[-1])
    else:
        top = float(eigsh(scaled, k=1, which="LA", return_eigenvectors=False, v0=np.ones(scaled.shape[0]))[0])
    return top < 1.0


def _largest_singular_value(weights: Coupling, gamma_v: Array, gamma_h: Array) -> float:
    """Return the norm of w_ij/√(γ_i γ_j): a Gaussian model is positive definite exactly below 1."""
    if 0 in weights.shape:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = sp.csr_array(weights) * (gamma_v**-0.5)[:, None] * gamma_h**-0.5
    largest = float(np.abs(scaled.data).max(initial=0.0))
    if not 0.0 < largest < 1.0:  # no entry exceeds the norm
        return largest if largest == 0.0 else max(largest, 1.0) if largest == largest else math.inf
    if min(scaled.shape) <= 500:
        small = scaled if scaled.shape[0] <= scaled.shape[1] else scaled.T
        return math.sqrt(max(0.0, float(np.linalg.eigvalsh((small @ small.T).toarray())[-1])))
    return float(svds(sp.csr_array(scaled), k=1, return_singular_vectors=False, v0=np.ones(min(scaled.shape)))[0])
