"""The one class of model, and the constructors of layered ones.

Every model is a Markov random field on a bipartite graph with energy

    E(v, h) = −(b·v + c·h + vᵀWh + offset)/T,    P(v, h) = exp(−E(v, h))/Z

(the paper's eq. RBM, and with one-hot features its general bipartite energy, eq. bipartite_energy_k). A
Gaussian variable x adds −½γx² inside the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import svds

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


@dataclass(frozen=True)
class Layers:
    """The variables, in the caller's order, are layers of these sizes, each coupled to the next."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BipartiteMRF:
    """Visible variables v, hidden variables h, and the coupling between the two sides.

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
        set_(self, "natural", self._natural())
        self._check_normalisable()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and models from another process, are built as any other: checked and read-only."""
        return BipartiteMRF, tuple(getattr(self, x.name) for x in fields(self) if x.init)

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
        with np.errstate(over="ignore"):
            size = abs(w)
            if not float(size.sum()) < LARGEST:
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
        return Natural(w, b, c, *units, offset)

    def _check_normalisable(self) -> None:
        if isinstance(self.visible_units, Gaussian) and isinstance(self.hidden_units, Gaussian):
            size = _largest_singular_value(self.weights, self.visible_units.gamma, self.hidden_units.gamma)
            if not size < 1.0:
                raise ValueError(
                    "weights make this Gaussian model not normalisable: the largest singular value of "
                    f"w_ij/√(γ_i γ_j) is {size:.6g}; it must be below 1"
                )

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

    def transposed(self) -> BipartiteMRF:
        """Return the same model with the names of the two sides exchanged: mAIS-H is mAIS-V of this."""
        return BipartiteMRF(
            self.weights.T,
            self.hidden_bias,
            self.visible_bias,
            self.hidden_units,
            self.visible_units,
            self.temperature,
            self.offset,
            Split(self.split.hidden, self.split.visible),
            self.layout,
        )

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
    def connected_parts(self) -> tuple[Indices, Indices, int]:
        """The connected part of every visible and of every hidden variable, and the number of parts."""
        n, m = self.n_visible, self.n_hidden
        if not self.is_sparse and self.weights.all():
            return np.zeros(n, dtype=np.int64), np.zeros(m, dtype=np.int64), 1
        v, h = self.edges.T
        graph = sp.csr_array((np.ones(len(v), dtype=np.int8), (v, h + n)), shape=(n + m, n + m))
        count, part = connected_components(graph, directed=False)
        return part[:n].astype(np.int64), part[n:].astype(np.int64), int(count)

    @cached_property
    def spin_form(self) -> SpinForm | None:
        """The equivalent model of ±1 spins, or None if a side is not made of two-state units."""
        v, h = self.visible_units, self.hidden_units
        if not (isinstance(v, TwoState) and isinstance(h, TwoState)):
            return None
        w, b, c = self.natural.weights, self.natural.visible_bias, self.natural.hidden_bias
        scale = v.scale * h.scale
        with np.errstate(over="ignore", invalid="ignore"):  # then its size is not finite, and nobody takes it
            rows = np.asarray(w.sum(axis=1)).ravel() if h.offset else np.zeros(len(b))
            columns = np.asarray(w.sum(axis=0)).ravel() if v.offset else np.zeros(len(c))
            constant = v.offset * total(b) + h.offset * total(c) + v.offset * total(h.offset * rows)
            return SpinForm(
                weights=w if scale == 1.0 else w * scale,
                visible_bias=v.scale * (b + h.offset * rows),
                hidden_bias=h.scale * (c + v.offset * columns),
                constant=constant,
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
        w = self.natural.weights
        terms = (
            (self.natural.visible_bias, signed[0]),
            (self.natural.hidden_bias, signed[1]),
            (w.data if sp.issparse(w) else w, any(signed)),
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


@dataclass(frozen=True)
class SpinForm:
    """Natural parameters in ±1 spins; −E of the original model, offset aside, is theirs plus `constant`."""

    weights: Coupling
    visible_bias: Array
    hidden_bias: Array
    constant: float

    @cached_property
    def size(self) -> float:
        """The sizes of all terms added up: what is computed from them is good to about 2^-52 of it."""
        w = self.weights.data if sp.issparse(self.weights) else self.weights
        with np.errstate(over="ignore", invalid="ignore"):
            terms = [np.abs(x).sum() for x in (w, self.visible_bias, self.hidden_bias, self.constant)]
        return float(sum(terms))

    def transposed(self) -> SpinForm:
        """Exchange the sides."""
        return SpinForm(self.weights.T, self.hidden_bias, self.visible_bias, self.constant)


def rbm(
    weights: ArrayLike | Any,
    visible_bias: ArrayLike,
    hidden_bias: ArrayLike,
    *,
    units: str | Sequence[str] = "spin",
    temperature: float = 1.0,
    visible_precision: ArrayLike | None = None,
    hidden_precision: ArrayLike | None = None,
) -> BipartiteMRF:
    """Restricted Boltzmann machine with weights of shape |V| × |H|.

    `units` is one word or a pair (visible, hidden): ``"spin"`` (−1, +1), ``"binary"`` (0, 1),
    ``"categorical:q"`` (one-hot: q rows or columns of the weights, and q biases, per variable) or
    ``"gaussian"`` with precision γ (1 by default).
    """
    pair = (units, units) if isinstance(units, str) else tuple(units) if isinstance(units, list | tuple) else ()
    if len(pair) != 2:
        raise ValueError(f"units is {shown(units)}; it must be one word or a pair (visible, hidden)")
    b, c = real_array(visible_bias, "visible_bias", 1), real_array(hidden_bias, "hidden_bias", 1)
    return BipartiteMRF(
        weights,
        b,
        c,
        parse_units(pair[0], len(b), precision_vector(visible_precision, len(b), "visible_precision"), "visible units"),
        parse_units(pair[1], len(c), precision_vector(hidden_precision, len(c), "hidden_precision"), "hidden units"),
        temperature,
    )


def as_model(value: Any, argument: str = "model") -> BipartiteMRF:
    """Return `value` as a model, or raise a ValueError that names the argument.

    `value` is a model already; a fitted scikit-learn ``BernoulliRBM``, or anything else with its
    ``components_`` (|H| × |V|), ``intercept_visible_`` and ``intercept_hidden_``; or a tuple (weights of shape
    |V| × |H|, visible_bias, hidden_bias). The latter two have 0/1 units.
    """
    if isinstance(value, BipartiteMRF):
        return value
    fitted = ("components_", "intercept_visible_", "intercept_hidden_")
    if all(hasattr(value, name) for name in fitted):
        components, b, c = (real_array(getattr(value, name), f"{argument}.{name}", None) for name in fitted)
        return rbm(components.T, b, c, units="binary")
    if isinstance(value, tuple) and len(value) == 3:
        return rbm(*value, units="binary")
    raise ValueError(
        f"{argument} is a {type(value).__name__}; it must be a BipartiteMRF (see rbm, load), a fitted BernoulliRBM "
        "or a tuple (weights, visible_bias, hidden_bias)"
    )


def dbm(
    weights: Sequence[ArrayLike],
    biases: Sequence[ArrayLike],
    *,
    units: str = "binary",
    temperature: float = 1.0,
) -> BipartiteMRF:
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
    return BipartiteMRF(
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
