"""Independent exact samples of the visible side from P(v), for small, sparse or Gaussian models.

Each method prepares a sampler, a function from uniforms, one row per chain, to rows of visible features. The choice of
the method and its preparation depend on the model alone. A row therefore depends only on the model, the seed and the
number of its chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..checks import dense
from ..models.forms import Natural
from ..models.interacting import InteractingMRF
from ..models.model import MRF
from ..models.units import Array, Gaussian
from ..parallel.threads import cores, jit_is_off
from ..random import TARGET, uniforms
from .elimination import Conditional, eliminate_factors, eliminate_log_z
from .enumeration import ChunkSums, chunk_sums, log_marginals
from .gaussian import gaussian_marginal
from .networks import cheapest_order
from .ordering import table_entries
from .structure import DiscreteSide, Factors, ordered_factors
from .ways import ENTRIES_PER_SECOND, FEATURES_PER_SECOND, PAIRS_ON_CPU, SOON, log2_seconds

Sampler = Callable[[Array], Array]

_MOST_STATES = 24.0  # log2 of the most states: 128 MiB of cumulative probabilities.
_MOST_CHUNKED_STATES = 32.0  # log2 of the most states that are summed in chunks, whose cumulative sums are kept.
_FEW_CHUNKS = 64  # Chunks that samples of a cold model lie in, for predictions of time.
_LOG2_CHUNK = 10  # log2 of the states of a chunk; those of the chunk of a sample are enumerated.
_MOST_ENTRIES = 26.0  # log2 of the most entries of all conditional tables: 512 MiB.
_MOST_GAUSSIANS = 4096  # Most Gaussian variables on the smaller side: 128 MiB for the covariance.
_UNIFORMS_AT_ONCE = 1 << 22  # Most uniforms that are drawn at a time: 32 MiB.
# Number of chains assumed in the choice of a method, which must not depend on the number requested.
_TYPICAL_CHAINS = 1000


class SampleMethod(NamedTuple):
    """A method to sample a model: its cost and its preparation."""

    seconds: float  # Seconds of the preparation.
    per_chain: float  # Seconds per chain.
    uniforms: int  # Number of uniforms per chain.
    prepare: Callable[[], Sampler | None]  # The result is None if floating point is not accurate enough.

    def cost(self, chains: int) -> float:
        """Return the approximate time in seconds."""
        return self.seconds + chains * self.per_chain


def sample_visible(
    model: MRF, seed: int, chains: NDArray[np.uint64], *, max_seconds: float = 30.0
) -> tuple[Array, str] | None:
    """Draw the visible side from P(v) exactly and independently, one row of features per chain.

    Also returns the name of the method: ``"enumeration"`` of the states of a side, ``"elimination"`` on a sparse graph,
    or ``"gaussian"`` if both sides are Gaussian. The result is None if no method would finish within `max_seconds`.
    """
    found: list[tuple[str, SampleMethod]] = []
    for name, way_of in WAYS.items():
        if name == "elimination" and any(way.cost(_TYPICAL_CHAINS) < SOON for _, way in found):
            continue  # Finding an order takes time, so this method is skipped.
        way = way_of(model)
        if way is not None:
            found.append((name, way))
    for name, way in sorted(found, key=lambda pair: pair[1].cost(_TYPICAL_CHAINS)):
        if way.cost(len(chains)) > max_seconds:
            return None
        samples = draw(model, way, seed, chains)
        if samples is not None:
            return samples, name
    return None


def draw(model: MRF, way: SampleMethod, seed: int, chains: NDArray[np.uint64]) -> Array | None:
    """Sample by one method, a bounded number of chains at a time."""
    sample = way.prepare()
    if sample is None:
        return None
    rows = np.empty((len(chains), len(model.visible_bias)))
    step = max(1, _UNIFORMS_AT_ONCE // max(1, way.uniforms))
    for start in range(0, len(chains), step):
        part = slice(start, start + step)
        rows[part] = sample(uniforms(seed, chains[part], 0, TARGET, way.uniforms))
    return rows


def _enumeration(model: MRF) -> SampleMethod | None:
    """Draw one side from the cumulative probabilities of all its states, then the other side given the first.

    On a graph that is not bipartite the first side is the visible one.
    """
    if model.has_terms:
        return None
    natural = model.natural
    visible, hidden = (
        float(units.log2_states(variables).sum()) + math.log2(len(others) + 8)
        for units, variables, others in (
            (natural.visible_units, model.n_visible, natural.hidden_bias),
            (natural.hidden_units, model.n_hidden, natural.visible_bias),
        )
    )
    if not model.is_bipartite:  # Only the hidden side can be summed out.
        visible, hidden = visible + math.log2(1 + len(natural.visible_bias) / (len(natural.hidden_bias) + 8)), math.inf
    swap = hidden < visible
    side = model.transposed() if swap else model
    if side.visible_units.log2_states(side.n_visible).sum() > _MOST_STATES:
        return _enumeration_in_chunks(side, natural if swap else None)
    return SampleMethod(
        log2_seconds(min(visible, hidden), FEATURES_PER_SECOND),
        1e-6 + swap * _seconds_to_complete(natural),
        2 + swap * model.n_visible,
        lambda: _state_sampler(side, natural if swap else None),
    )


def _state_sampler(side: MRF, whole: Natural | None) -> Sampler | None:
    """Return a sampler of the visible side of `side`.

    With `whole`, that is the hidden side of `whole`, and the visible side of `whole` is drawn given it.
    """
    states = DiscreteSide.of(side.visible_units, len(side.visible_bias))
    assert states is not None
    with np.errstate(over="ignore", invalid="ignore"):  # An overflow is detected below.
        log_p = np.concatenate(list(log_marginals(side)))
        top = log_p.max()
    if not math.isfinite(top):
        return None
    log_p -= top
    below = np.cumsum(np.exp(log_p, out=log_p), out=log_p)
    last = np.nextafter(below[-1], 0.0)  # The upper limit ensures that the state has a positive probability.

    def sample(u: Array) -> Array:
        # A uniform has 32 bits, too few for this many states; the second one gives the lower digits.
        fine = u[:, 0] + (u[:, 1] - 0.5) * 2.0**-32
        x = states.numbered(np.searchsorted(below, np.minimum(fine * below[-1], last), side="right"))
        return x if whole is None else _complete(whole, x, u[:, 2:])

    return sample


def _enumeration_in_chunks(side: MRF, whole: Natural | None) -> SampleMethod | None:
    """Draw the visible side of `side` from the sums over chunks of its states, and within the chunk by enumeration.

    This serves two-state units without couplings inside the side, with more states than can be kept.
    """
    n, m = side.n_visible, side.n_hidden
    if side.spin_form is None or jit_is_off() or not side.is_bipartite or not 6 < n <= _MOST_CHUNKED_STATES:
        return None
    width = 0 if whole is None else len(whole.visible_bias)
    return SampleMethod(
        _seconds_in_chunks(side),
        2.0**_LOG2_CHUNK * m / FEATURES_PER_SECOND + (0.0 if whole is None else _seconds_to_complete(whole)),
        2 + width,
        lambda: _chunk_sampler(side, _sums_in_chunks(side, cores(None)), whole),
    )


def _seconds_in_chunks(side: MRF) -> float:
    return 2.0**side.n_visible * side.n_hidden / PAIRS_ON_CPU + 2.0 ** (side.n_visible - _LOG2_CHUNK) * 1e-4


def _sums_in_chunks(side: MRF, threads: int) -> ChunkSums:
    units = side.natural.visible_units, side.natural.hidden_units
    return chunk_sums(side.natural, units, threads, lambda fraction: None, _LOG2_CHUNK)


def enumerated_states(
    model: MRF, seed: int, chains: NDArray[np.uint64], threads: int, seconds: float
) -> tuple[Array, float] | None:
    """Draw the visible side from P(v) by the sums over chunks of states, which also give ln Z; return both.

    The result is None if this method does not apply or is predicted to take longer than so many seconds. Unlike
    `sample_visible`, which keeps the samples that it has always drawn, it takes this method for few states, too.
    """
    if model.has_terms or not model.is_bipartite:
        return None
    side, whole = (model.transposed(), model.natural) if model.n_hidden < model.n_visible else (model, None)
    way = _enumeration_in_chunks(side, whole)
    if way is None:
        return None
    # The samples of models that are cold enough to need them lie in few chunks.
    chunks = min(len(chains), _FEW_CHUNKS, 2.0 ** (side.n_visible - _LOG2_CHUNK))
    if way.seconds / threads + chunks * way.per_chain > seconds:
        return None
    sums = _sums_in_chunks(side, threads)
    sample = _chunk_sampler(side, sums, whole)
    if sample is None:
        return None
    return sample(uniforms(seed, chains, 0, TARGET, way.uniforms)), sums.log_z + model.natural.offset


def _chunk_sampler(side: MRF, found: ChunkSums, whole: Natural | None) -> Sampler | None:
    """Return a sampler of the visible side of `side`, or of the other side given it as in `_state_sampler`."""
    natural, n = side.natural, side.n_visible
    weights, shares = dense(natural.weights), found.shares
    if not (np.isfinite(shares).all() and shares.any()):
        return None
    below = np.concatenate([[0.0], np.cumsum(shares)])
    assert natural.visible_units.values is not None
    low, high = natural.visible_units.values
    bits = np.arange(n)

    def states(numbers: NDArray[np.int64]) -> Array:
        return np.where((numbers[:, None] >> bits) & 1, high, low)

    def sample(u: Array) -> Array:
        at = (u[:, 0] + (u[:, 1] - 0.5) * 2.0**-32) * below[-1]
        chunks = np.clip(np.searchsorted(below, at, side="right") - 1, 0, len(shares) - 1)
        x = np.empty((len(u), n))
        for chunk in np.unique(chunks):
            here = np.flatnonzero(chunks == chunk)
            v = states((int(chunk) << found.log2_size) + np.arange(1 << found.log2_size))
            log_p = v @ natural.visible_bias
            log_p += natural.hidden_units.log_normaliser(natural.hidden_bias + v @ weights)
            within = np.cumsum(np.exp(log_p - log_p.max()))
            rest = np.clip((at[here] - below[chunk]) / shares[chunk], 0.0, 1.0) * np.nextafter(within[-1], 0.0)
            x[here] = v[np.searchsorted(within, rest, side="right")]
        return x if whole is None else _complete(whole, x, u[:, 2:])

    return sample


def _elimination(model: MRF) -> SampleMethod | None:
    """Draw the variables of a discrete model of low width one by one, in reverse order of their elimination."""
    if isinstance(model, InteractingMRF):
        return _elimination_of_factors(model)
    found = ordered_factors(model, stop_above=_MOST_ENTRIES)
    if found is None:
        return None
    parts, order, width = found
    if width > _MOST_ENTRIES:
        return None
    entries, n = table_entries(parts.edges, parts.cards, order), len(parts.cards)
    if entries > 2**_MOST_ENTRIES:
        return None
    side = DiscreteSide.of(model.visible_units, len(model.visible_bias))
    assert side is not None
    return SampleMethod(
        entries / ENTRIES_PER_SECOND + 1e-4 * n,
        1e-7 * n,
        n,
        lambda: _backward_sampler(parts.cards, _laws(parts, order), side),
    )


def _elimination_of_factors(model: InteractingMRF) -> SampleMethod | None:
    cards, factors = model.factors
    order, entries = cheapest_order(cards, [scope for scope, _ in factors])
    side = DiscreteSide.of(model.visible_units, len(model.visible_bias))
    assert side is not None
    if entries > _MOST_ENTRIES:
        return None

    def prepare() -> Sampler:
        laws: list[Conditional] = []
        eliminate_factors(cards, factors, order, conditionals=laws)
        return _backward_sampler(cards, laws, side)

    return SampleMethod(2.0**entries / ENTRIES_PER_SECOND + 1e-4 * len(cards), 1e-7 * len(cards), len(cards), prepare)


def _laws(parts: Factors, order: list[int]) -> list[Conditional]:
    laws: list[Conditional] = []
    eliminate_log_z(*parts, order, laws)
    return laws


def _backward_sampler(cards: Sequence[int], laws: list[Conditional], side: DiscreteSide) -> Sampler:
    # Hidden variables on which no visible one depends are not drawn.
    wanted = set(range(len(side.cards)))
    for law in laws:
        if law.variable in wanted:
            wanted.update(law.given)
    laws = [law for law in reversed(laws) if law.variable in wanted]

    def sample(u: Array) -> Array:
        by_variable = np.ascontiguousarray(u.T)
        states = np.zeros(by_variable.shape, dtype=np.int64)
        for v, given, below in laws:
            column = np.zeros(1, dtype=np.int64)  # All chains use the same column if no variable is given.
            for other in given:
                column = column * cards[other] + states[other]
            for row in below:
                states[v] += row[column] <= by_variable[v]
        return side.features(states[: len(side.cards)].T)

    return sample


def _gaussian(model: MRF) -> SampleMethod | None:
    """Draw the smaller side of a Gaussian model from its marginal distribution, then the other side given it.

    On a graph that is not bipartite the visible side is drawn directly.
    """
    natural = model.natural
    v, h = natural.visible_units, natural.hidden_units
    swap = model.is_bipartite and model.n_hidden < model.n_visible
    n = model.n_hidden if swap else model.n_visible
    if v.precisions is None or h.precisions is None or n > _MOST_GAUSSIANS:
        return None
    w, b, c = natural.weights, natural.visible_bias, natural.hidden_bias
    law = (
        (w, b, c, v.precisions, h.precisions, None)
        if swap
        else (w.T, c, b, h.precisions, v.precisions, natural.lateral)
    )
    return SampleMethod(
        2e-10 * n * (n**2 + w.size),
        1e-9 * n**2 + 1e-7 * n + swap * _seconds_to_complete(natural),
        n + swap * model.n_visible,
        lambda: _normal_sampler(law, natural if swap else None),
    )


def _normal_sampler(law: tuple[Any, Array, Array, Array, Array, Any], whole: Natural | None) -> Sampler | None:
    """Return a sampler of the second side of `law`.

    With `whole`, that is the hidden side of `whole`, and the visible side of `whole` is drawn given it.
    """
    try:
        matrix, mean = gaussian_marginal(*law)
    except ValueError:  # The matrix is too close to singular.
        return None
    n = len(mean)
    one = Gaussian((1.0,) * n)

    def sample(u: Array) -> Array:
        x = _product(matrix, one.draw(np.broadcast_to(mean, (len(u), n)), u[:, :n]))
        return x if whole is None else _complete(whole, x, u[:, n:])

    return sample


def _complete(whole: Natural, hidden: Array, u: Array) -> Array:
    """Draw v from P(v|h) (eq. conditional_dist_V|H)."""
    return whole.visible_units.draw(whole.visible_bias + _product(whole.weights, hidden), u)


def _seconds_to_complete(natural: Natural) -> float:
    """Return the approximate time of `_complete` for one chain, in seconds."""
    return 1e-9 * natural.weights.size + 1e-7 * len(natural.visible_bias)


def _product(matrix: Any, rows: Array) -> Array:
    """Multiply the matrix with each row.

    A sparse product sums each entry separately, in the order of the columns. BLAS may change the order with the number
    of rows, and the last bits of a sample would then depend on the other chains.
    """
    return np.ascontiguousarray((sp.csr_array(matrix) @ rows.T).T)


WAYS: dict[str, Callable[[MRF], SampleMethod | None]] = {
    "gaussian": _gaussian,
    "enumeration": _enumeration,
    "elimination": _elimination,
}
