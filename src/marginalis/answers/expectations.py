"""Mean values under P of every variable, of products along couplings, of single states, and of any function.

They are exact if that is cheap. Otherwise they are averages over the weighted chains of one run, in which the
summed-out side enters by its exact means given the sampled side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from ..checks import Array, one_line, whole, yes_or_no
from ..display import sketch
from ..display.words import decimals
from ..engines.placement import REFERENCE
from ..engines.plan import model_digest
from ..exact import ModelTooLarge, exact_log_z
from ..models.factors import FactorModel
from ..models.forms import Indices
from ..models.layered import as_factors, as_model
from ..models.model import MRF
from ..options import RunOptions, filled_in, plan_options, takes_options
from ..results.estimate import Estimate
from ..results.record import Answer, Record
from ..results.written import data_frame, finite, plain_name
from ..running.session import open_session
from .exact_means import exact_means, factor_marginals
from .features import Features, Function, evaluated, named_functions
from .final_states import FinalStates, final_states
from .gradient import Gradient, gradient_of
from .unseen import reach_of_function, reaches_of_means, reaches_of_products, widened

_CHEAP, _ANY = 26.0, 34.0  # log2 of the operations that take about a second, and of those that take some minutes.
_CHEAP_TABLES = 22.0  # log2 of the table entries that take about a second.
_SHOWN = 40  # Largest number of printed lines of a table.


@dataclass(frozen=True, eq=False, repr=False)
class Expectations(Answer):
    """Mean values with standard errors, in the caller's order.

    `means` are those of the features: one per variable, or one per state of a categorical variable. `correlations` are
    the means of products x_a x_b of the coupled features `pairs`, numbered as in `means`; see `feature` for their
    names. `functions` and `function_errors` hold the means and errors of the given functions by name. States that no
    chain has visited may have a probability of about one over the effective number of chains; errors are at least the
    change of the mean that they can cause.
    """

    means: Array  #: Mean of each feature, in the caller's order.
    mean_errors: Array  #: Their standard errors; 0 if exact.
    pairs: Indices  #: Pairs of features that are coupled.
    correlations: Array  #: Mean product of each pair.
    correlation_errors: Array  #: Their standard errors.
    functions: Mapping[str, Array]  #: Mean of each given function, by name.
    function_errors: Mapping[str, Array]  #: Their standard errors.
    features: Features  #: The variable, and the state if it is categorical, of each feature.
    record: Record  #: Options, seeds, engine and seconds of the run.
    source: str  #: "annealing", or the exact method.
    estimate: Estimate | None = None  #: Estimate of F from the same chains; None if the means are exact.
    notes: tuple[str, ...] = ()  #: Warnings.
    model: MRF | None = None  #: None for a model of factors.
    _is_table = True

    @property
    def is_exact(self) -> bool:
        """Whether these are exact values; then all errors are 0."""
        return self.estimate is None

    @property
    def labels(self) -> Sequence[Any]:
        """The caller's names of the variables."""
        return self.features.labels

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt these values, as sentences."""
        return self.notes if self.estimate is None else self.estimate.warnings + self.notes

    def feature(self, number: int) -> Any:
        """Return the name of a feature: the label of its variable, together with the state if it is categorical."""
        return self.features.name(number)

    @cached_property
    def edges(self) -> list[tuple[Any, Any]]:
        """Names of the coupled features, one pair for each correlation."""
        return [(self.feature(a), self.feature(b)) for a, b in self.pairs.tolist()]

    @cached_property
    def marginals(self) -> list[Array]:
        """P(x) of the states of every variable, all discrete; the lower value of a spin or binary variable is first."""
        return [p for p, _ in self._marginals]

    @cached_property
    def marginal_errors(self) -> list[Array]:
        """Standard errors of `marginals`."""
        return [error for _, error in self._marginals]

    @cached_property
    def _marginals(self) -> list[tuple[Array, Array]]:
        what = self.features
        if np.isnan(what.values).any():
            raise ValueError("a Gaussian variable has no states: there are no marginals to list; see means")
        starts = np.flatnonzero(np.diff(what.owners, prepend=-1)).tolist()
        found = []
        for first, end in zip(starts, [*starts[1:], len(what.owners)], strict=True):
            if what.states[first] >= 0:
                found.append((self.means[first:end], self.mean_errors[first:end]))
                continue
            low, high = what.values[first]
            up = min(max((self.means[first] - low) / (high - low), 0.0), 1.0)
            found.append((np.array([1.0 - up, up]), np.full(2, self.mean_errors[first] / (high - low))))
        return found

    @cached_property
    def log_z(self) -> float:
        """ln Z of the model: exact, or from the same chains."""
        if self.estimate is not None:
            return self.estimate.log_z
        if self.model is None:
            raise ValueError("log_z of a model of factors: use exact_log_z")
        return float(exact_log_z(self.model))

    @property
    def free_energy(self) -> float:
        """F = −ln Z of the model."""
        return -self.log_z

    def gradient(self) -> Gradient:
        """Return the derivatives of ln Z by biases and couplings, in the shapes of the model, with standard errors."""
        if self.model is None:
            raise ValueError("a model of factors has no biases and couplings: there is no gradient by them")
        return gradient_of(
            self.model, self.means, self.mean_errors, self.pairs, self.correlations, self.correlation_errors
        )

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with one row for every mean, product along a coupling, and function."""
        kinds = [
            *(
                ("mean", self.feature(k), x, e)
                for k, (x, e) in enumerate(zip(self.means, self.mean_errors, strict=True))
            ),
            *(
                ("product", edge, x, e)
                for edge, x, e in zip(self.edges, self.correlations, self.correlation_errors, strict=True)
            ),
            *(
                ("function", name if np.ndim(values) == 0 else (name, k), x, e)
                for name, values in self.functions.items()
                for k, (x, e) in enumerate(zip(np.ravel(values), np.ravel(self.function_errors[name]), strict=True))
            ),
        ]
        return data_frame([{"kind": k, "of": of, "mean": float(x), "error": float(e)} for k, of, x, e in kinds])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; infinite numbers, such as the errors of one chain, become None."""
        means = [
            {"feature": plain_name(self.feature(k)), "mean": float(x), "error": finite(float(e))}
            for k, (x, e) in enumerate(zip(self.means, self.mean_errors, strict=True))
        ]
        correlations = [
            {"features": [plain_name(a), plain_name(b)], "mean": float(x), "error": finite(float(e))}
            for (a, b), x, e in zip(self.edges, self.correlations, self.correlation_errors, strict=True)
        ]
        functions = {
            name: {"mean": x.tolist(), "error": [finite(e) for e in errors] if x.ndim else finite(float(errors))}
            for (name, x), errors in zip(self.functions.items(), self.function_errors.values(), strict=True)
        }
        estimated = (
            {}
            if self.estimate is None
            else {"log_z": self.estimate.log_z, "ess": self.estimate.ess, "ess_of": self.ess_of}
        )
        return {
            "means": means,
            "correlations": correlations,
            "functions": functions,
            "is_exact": self.is_exact,
            "source": self.source,
            **estimated,
            "variables": self.variables,
            **self.record.to_dict(),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        names = [one_line(self.feature(k), 60) for k in range(min(_SHOWN, len(self.means)))]
        lines = _table(names, self.means, self.mean_errors)
        edges = [
            f"{one_line(self.feature(a), 60)} · {one_line(self.feature(b), 60)}"
            for a, b in self.pairs[:_SHOWN].tolist()
        ]
        lines += _table(edges, self.correlations, self.correlation_errors)
        for name, value in self.functions.items():
            errors = np.atleast_1d(self.function_errors[name])
            lines += _table([one_line(name, 60)] * errors.size, np.atleast_1d(value), errors)
        if self.estimate is None:
            lines.append(f"exact, by {self.source}, {self.seconds:.2f} s")
        else:
            lines.append(
                f"{self.method}, {self.record}, {self.chains} chains ({self.estimate.ess_in_words}), seed {self.seed}, "
                f"{self.engine}, {self.seconds:.2f} s"
            )
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _headline(self) -> str:
        return f"Means of {self.variables} variables and {len(self.pairs)} products   ({self.source})"

    def _sketch(self) -> str:
        return sketch.histogram(self.means, self.correlations, about="means, and means of products")


def _table(names: Sequence[str], means: Array, errors: Array) -> list[str]:
    lines = []
    for name, x, e in zip(names[:_SHOWN], means, errors, strict=False):
        digits = decimals(float(e))
        lines.append(f"⟨{name}⟩ = {x:z.{digits}f}" + (f" ± {e:.{digits}f}" if e > 0.0 else ""))
    if len(means) > _SHOWN:
        lines.append(f"… and {len(means) - _SHOWN} more")
    return lines


@takes_options()
def expectations(
    model: Any,
    functions: Any = None,
    *,
    exact: bool | None = None,
    moves: int | None = None,
    **options: Unpack[RunOptions],
) -> Expectations:
    """Return means of all variables, of products along couplings and of functions, with standard errors.

    Parameters
    ----------
    model
        A model (see `rbm`, `load`), or anything that `as_model` accepts. For a `FactorModel` that is not one of pairs
        the features are the states of the variables, and their means are probabilities; there are no products.
    functions
        Functions of the whole state: one, a list, or a dict by name. Each takes rows of all features in the caller's
        order and returns a number, or a row of numbers, per row.
    exact
        True: exact values, or a `ModelTooLarge` error. False: values from chains. By default values are exact if that
        takes about a second.
    moves
        Number of moves under the model itself after the annealing, over which values are averaged. The default is 10,
        or fewer if the states would need more than a quarter of a GiB.
    """
    yes_or_no(exact, "exact", optional=True)
    begin = time.perf_counter()
    chosen = filled_in(options)
    wanted = named_functions(functions)
    moves = None if moves is None else whole(moves, "moves", 1, 10**6)
    model = as_factors(model)
    factors: FactorModel | None = None
    if isinstance(model, FactorModel) and model.why_not_annealed() is not None:
        factors = model
        known = None if exact is False else _of_factors(model, exact, bool(wanted), begin)
        if known is not None:
            return known
        wanted = {name: in_states(factors, function) for name, function in wanted.items()}
        exact = False
    model = as_model(model)
    what = Features.of(model)
    if exact is not False:
        found = exact_means(model, what, wanted, _ANY if exact else _CHEAP, _ANY if exact else _CHEAP_TABLES)
        if found is not None:
            record = _exact_record(model_digest(model), model.n_variables, found.way, begin)
            return _exactly(what, found.features, found.products, found.functions, record, model)
        if exact:
            raise ModelTooLarge(
                "exact means take the enumeration of a side, a sparse graph of low width, a planar graph or a torus "
                "without fields, or Gaussians only"
                + (", and functions all states of a small model" if wanted else "")
                + ": leave out exact for an estimate"
            )
    if not model.n_edges:
        raise ValueError("the model has no couplings: there is nothing to anneal; leave out exact=False and functions")
    with open_session(chosen, "expectations", model) as session:
        states = final_states(model, moves, session, plan_options(chosen))
    answer = _from_chains(states, model, what, wanted)
    if factors is not None:
        answer = by_states(answer, factors)
    return answer.with_seconds(time.perf_counter() - begin)


def _exact_record(digest: str, variables: int, way: str, begin: float) -> Record:
    return Record(
        model=digest,
        variables=variables,
        method=f"exact, by {way}",
        steps=0,
        schedule="none",
        base="none",
        transition="none",
        engine=REFERENCE,
        precision="double",
        runs=((0, 0, 0),),
        seconds=time.perf_counter() - begin,
    )


def _exactly(
    what: Features, means: Array, products: Array, functions: Mapping[str, Array], record: Record, model: MRF | None
) -> Expectations:
    return Expectations(
        means=means,
        mean_errors=np.zeros(len(means)),
        pairs=what.pairs,
        correlations=products,
        correlation_errors=np.zeros(len(products)),
        functions=functions,
        function_errors={name: np.zeros(np.shape(x)) for name, x in functions.items()},
        features=what,
        record=record,
        source=record.method.removeprefix("exact, by "),
        model=model,
    )


def _of_factors(model: FactorModel, exact: bool | None, has_functions: bool, begin: float) -> Expectations | None:
    """Return exact probabilities of the states of a model of factors, as one-hot features, or None."""
    if has_functions:
        if exact:
            raise ModelTooLarge("exact means of functions take a model of pairs: leave out exact for an estimate")
        return None
    marginals = factor_marginals(model)
    if marginals is None:
        if exact:
            raise ModelTooLarge("elimination would take too large tables: leave out exact for an estimate")
        return None
    what = features_of_states(model)
    record = _exact_record("factors", model.n_variables, "elimination", begin)
    return _exactly(what, np.concatenate([np.zeros(0), *marginals]), np.zeros(0), {}, record, None)


def features_of_states(model: FactorModel) -> Features:
    """Return the features of a model of factors: one for each state of every variable."""
    owners = np.repeat(np.arange(model.n_variables), model.cards)
    states = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(q) for q in model.cards)])
    values = np.broadcast_to([0.0, 1.0], (len(owners), 2))
    return Features(model.labels, owners, states, values, np.zeros((0, 2), dtype=np.int64))


def in_states(model: FactorModel, function: Function) -> Function:
    """Return a function of rows of states of a model of factors as one of the features that are annealed."""

    def of_features(rows: Array) -> Any:
        return function(np.stack([rows < 0.0, rows > 0.0], axis=2).reshape(len(rows), -1).astype(np.float64))

    return of_features if set(model.cards) == {2} else function


def by_states(found: Expectations, model: FactorModel) -> Expectations:
    """Return mean values of a model of factors with one feature for each state of every variable."""
    means, errors = found.means, found.mean_errors
    if set(model.cards) == {2}:  # They are spins; state 0 is −1.
        means, errors = np.stack([1.0 - means, 1.0 + means], axis=1).ravel() / 2.0, np.repeat(errors / 2.0, 2)
    return replace(found, means=means, mean_errors=errors, features=features_of_states(model), model=None)


@np.errstate(over="ignore", invalid="ignore")
def _from_chains(states: FinalStates, model: MRF, what: Features, functions: dict[str, Function]) -> Expectations:
    moves, chains, _ = states.visible.shape
    units = states.model.natural.hidden_units
    own, rows = (np.empty((states.model.n_features, moves, chains)) for _ in range(2))
    sums: dict[str, list[Array]] = {name: [] for name in functions}
    for k in range(moves):
        hidden_means, hidden = units.mean(states.fields(k)), states.hidden(k)
        own[:, k] = states.model.in_callers_order(states.visible_means(k, hidden), hidden_means).T
        rows[:, k] = states.model.in_callers_order(states.visible[k], hidden_means).T
        if functions:
            drawn = states.model.in_callers_order(states.visible[k], hidden)
            drawn.flags.writeable = False
            for name, function in functions.items():
                sums[name].append(evaluated(function, name, drawn))
    means, mean_errors = states.average(own)
    products, product_errors = states.average_products(rows, what.pairs)
    product_errors = np.maximum(product_errors, states.least_errors(own, rows, what.pairs, what.values))
    reach = reaches_of_means(states, what, means)
    mean_errors = np.fmax(mean_errors, states.once * reach)
    product_errors = np.fmax(product_errors, states.once * reaches_of_products(states, what, means, reach, products))
    values: dict[str, Array] = {}
    errors: dict[str, Array] = {}
    for name, found in sums.items():
        shape = found[0].shape[1:]
        numbers = np.moveaxis(np.stack(found).reshape(moves, chains, -1), 2, 0)
        average, error = states.average(numbers)
        reach = reach_of_function(states, what, functions[name], name, numbers, drawn)
        values[name], errors[name] = average.reshape(shape), widened(states, error, reach).reshape(shape)
    if not all(np.isfinite(x).all() for x in (means, products, *values.values())):
        raise ValueError("mean values are not finite: the parameters are too large for floating point")
    return Expectations(
        means=means,
        mean_errors=mean_errors,
        pairs=what.pairs,
        correlations=products,
        correlation_errors=product_errors,
        functions=values,
        function_errors=errors,
        features=what,
        record=Record.of(states.plan, math.nan),
        source="annealing",
        estimate=states.estimate,
        notes=states.doubts,
        model=model,
    )
