"""Boltzmann machines: restricted, deep, and those fitted by other packages."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ..checks import Array, a_kind, coupling_matrix, dense, precision_vector, real_array, shown
from .annealed import BOUND, annealed, interacting
from .factors import FactorModel
from .forms import Layers, Split
from .graphs import from_bqm, from_graph
from .model import MRF
from .named_arrays import from_state, is_state
from .networks import from_binary_polynomial, from_pgmpy, has_tables, is_polynomial
from .units import Units, parse_units

_NO_UNITS = (
    "is a tuple without units: spins (-1 and +1) are assumed, as by rbm; for units of 0 and 1 give (weights, "
    "visible_bias, hidden_bias, 'binary')"
)


def rbm(
    weights: ArrayLike | Any,
    visible_bias: ArrayLike,
    hidden_bias: ArrayLike,
    *,
    units: str | Units | Sequence[str | Units] = "spin",
    temperature: float = 1.0,
    visible_precision: ArrayLike | None = None,
    hidden_precision: ArrayLike | None = None,
) -> MRF:
    """Return a restricted Boltzmann machine of spins −1 and +1, or of 0/1 units with ``units="binary"``.

    E(v, h) = −(Σ_i b_i v_i + Σ_j c_j h_j + Σ_ij w_ij v_i h_j)/T.

    Parameters
    ----------
    weights
        Couplings w of shape |V| × |H|, a dense or a ``scipy.sparse`` matrix.
    visible_bias
        Fields b of the visible units, |V| numbers.
    hidden_bias
        Fields c of the hidden units, |H| numbers.
    units
        Kinds of units, one word or a pair (visible, hidden): ``"spin"`` (−1, +1; the default), ``"binary"`` (0, 1),
        ``"categorical:q"`` (one-hot: q rows or columns of the weights, and q biases, per variable), ``"gaussian"``,
        `ReLU` or `dReLU`, as in ``("spin", mg.ReLU(gamma))``, or your own kind (see `models.units`).
    temperature
        T > 0, which divides the whole energy.
    visible_precision
        γ > 0 of Gaussian visible units, which adds −γv²/2 inside the bracket of the energy; one number or one for each
        unit, 1 by default.
    hidden_precision
        γ of Gaussian hidden units.
    """
    pair = (units, units) if isinstance(units, str | Units) else tuple(units) if isinstance(units, list | tuple) else ()
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


def as_factors(value: Any) -> Any:
    """Return graphs with tables, and polynomials, as a `FactorModel`, and all other values unchanged."""
    if is_polynomial(value):
        return from_binary_polynomial(value)
    return from_pgmpy(value) if has_tables(value) else value


def as_model(value: Any, argument: str = "model") -> MRF:
    """Return `value` as a model, or raise a ValueError that names the argument.

    Parameters
    ----------
    value
        A model already, or one of

        - a tuple (weights of shape |V| × |H|, visible_bias, hidden_bias, units), as `rbm` takes them; without the
          units, spins are assumed, with a Python warning;
        - a fitted scikit-learn ``BernoulliRBM`` (0/1 units), or a ``Pipeline`` that ends in one;
        - a dimod binary quadratic model (see `from_bqm`), a networkx graph (see `from_graph`);
        - a ``BinaryPolynomial`` of dimod;
        - a Markov network, factor graph or Bayesian network of pgmpy (see `from_pgmpy`);
        - a torch module or its ``state_dict`` (see `states.from_state`);
        - a `FactorModel` without zeros (those with zeros can be estimated and summed exactly only, see `annealable`).
    argument
        The name of the value in error messages.
    """
    if isinstance(value, MRF):
        return value
    value = as_factors(value)
    if isinstance(value, FactorModel):
        return annealed(value)
    fitted = ("components_", "intercept_visible_", "intercept_hidden_")
    steps = getattr(value, "steps", None)
    if isinstance(steps, list) and steps and isinstance(steps[-1], tuple):
        last = steps[-1][-1]
        if not all(hasattr(last, name) for name in fitted):
            raise ValueError(f"{argument} is a pipeline that does not end in a fitted BernoulliRBM")
        return as_model(last, argument)
    if all(hasattr(value, name) for name in fitted):
        components, b, c = (real_array(getattr(value, name), f"{argument}.{name}", None) for name in fitted)
        return rbm(components.T, b, c, units="binary")
    if isinstance(value, tuple) and len(value) == 4 and isinstance(value[3], str | tuple):
        return rbm(*value[:3], units=value[3])
    if isinstance(value, tuple) and len(value) == 3:
        found = rbm(*value)
        warnings.warn(f"{argument} {_NO_UNITS}", stacklevel=2)
        return found
    if hasattr(value, "vartype") and hasattr(value, "quadratic"):
        return from_bqm(value)
    if all(hasattr(value, name) for name in ("nodes", "edges", "is_directed")):
        return from_graph(value)
    if isinstance(value, list | Mapping) and value and all(isinstance(x, MRF | FactorModel) for x in _entries(value)):
        raise ValueError(
            f"{argument} is a {type(value).__name__} of {len(value)} models; it must be one of them: estimate_many "
            "answers for each, along and log_likelihood(along(models), data) for the models of a training run"
        )
    if is_state(value):
        return from_state(value, argument)
    raise ValueError(
        f"{argument} is {a_kind(value)}; it must be an MRF (see rbm, load), a tuple (weights, visible_bias, "
        "hidden_bias, units), a fitted BernoulliRBM, a quadratic model of dimod, a networkx graph, a model of pgmpy or "
        "a torch state"
    )


def annealable(value: Any) -> MRF:
    """Return any kind of model as one that can be annealed, or raise a ValueError.

    A factor model with zeros is reduced first (see `FactorModel.reduced`); zeros that are left become penalties.
    """
    if isinstance(value, MRF):
        return value
    model = as_factors(value)
    if not isinstance(model, FactorModel) or (model.largest_scope <= 2 and not model.is_hard):
        return as_model(value)
    left = model.given()
    if left.is_hard:
        left = left.reduced(BOUND).given()  # A sum may leave a table of one variable with zeros.
    return interacting(left) if left.is_hard else annealed(left)


def _entries(models: list[Any] | Mapping[Any, Any]) -> list[Any]:
    return list(models.values()) if isinstance(models, Mapping) else models


def dbm(
    weights: Sequence[ArrayLike],
    biases: Sequence[ArrayLike],
    *,
    units: str = "binary",
    temperature: float = 1.0,
) -> MRF:
    """Return a deep Boltzmann machine: layers x_0, x_1, … of spins or binaries, W_l between x_l and x_{l+1}.

    E = −(Σ_l b_l·x_l + Σ_l x_lᵀ W_l x_{l+1})/T. The even layers are one side of a bipartite graph and the odd layers
    the other.

    Parameters
    ----------
    weights
        The matrices W_0, W_1, …, one fewer than there are layers; W_l has a row per unit of layer l and a column per
        unit of layer l + 1.
    biases
        The fields b_0, b_1, … of the layers.
    units
        ``"binary"`` (0 and 1, the default) or ``"spin"`` (−1 and +1), for all layers.
    temperature
        T > 0, which divides the whole energy.
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
            raise ValueError(f"weights[{i}] has shape {x.shape}; the biases need {(len(b[i]), len(b[i + 1]))}")
        w.append(dense(coupling_matrix(x, f"weights[{i}]")) if sp.issparse(x) else x)
    if not isinstance(units, str) or units not in ("spin", "binary"):
        raise ValueError(f"units is {shown(units)}; a DBM has spin or binary units")
    even, odd = range(0, len(b), 2), range(1, len(b), 2)
    blocks = [
        [w[i] if j == i + 1 else w[j].T if j == i - 1 else None for j in odd]  # Only neighbouring layers are coupled.
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
