"""Methods to sum a network of tables of any arity, with their predicted time and memory.

If the tables of a greedy order are small, elimination is used. Otherwise the network is reduced, a search looks for a
better order, and counting is considered besides the contraction if many entries are zero or equal. The time of counting
cannot be predicted, so counting is limited to the time of the contraction, and the contraction follows if it fails.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..models.reduction import Factor, Network
from ..parallel.memory import free_memory
from ..parallel.threads import Tick, jit_is_off
from .counting import INSTALL, count_log_z, encode, is_deterministic, is_installed
from .elimination import MAX_LOG2_TABLE, eliminate_factors
from .ordering import elimination_order, table_entries

if TYPE_CHECKING:
    from .contraction import Contraction


ENTRIES_PER_SECOND = 1e8  # Table entries per second of elimination, a conservative value.
AT_ONCE = 0.5  # If elimination takes at most this many seconds, no better method is searched for.
_REDUCTION = 3e-4  # Seconds that reduction takes for each variable.
# Variables with tables of up to 2^4 entries are summed out before the search; larger tables would hinder it.
_BOUND = 4.0
_SEARCH = 2.0  # Longest search for an order, in seconds.
_SEARCH_SHARE = 0.1  # The search takes at most this fraction of the time of the best known order.
_HOPELESS = 60.0  # Greedy orders with tables of more than 2^60 entries are abandoned.
_FEW = 20.0  # An order whose tables have up to 2^20 entries together is good enough.
_MEMORY = 0.6  # Largest fraction of the free memory for tables.
_SURE = 4.0  # If the contraction takes at most this many seconds, counting is not tried.
_LEAST_COUNTING = 3.0  # Counting comes before the contraction only if at least this many seconds are left for it.
_COUNTING_MEMORY = 8e9  # Most bytes of memory for counting.


class NetworkWay(NamedTuple):
    """A method to sum a network: its name, time in seconds, memory in bytes, description, and the sum itself."""

    name: str
    seconds: float
    bytes: float
    size: str
    run: Callable[[int, Tick], float]


def edges_of(scopes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return all pairs of variables that share a scope."""
    return sorted({pair for scope in scopes for pair in itertools.combinations(sorted(scope), 2)})


def network_ways(
    cards: Sequence[int], factors: Sequence[Factor], max_seconds: float, *, counting: bool = True
) -> list[NetworkWay]:
    """Return the methods to sum exp of the sum of the tables over all states, in the order in which to try them.

    At least one is returned, even if it would take longer than `max_seconds`. `counting` says whether solutions may be
    counted. A method returns −∞ if no state is possible.
    """
    scopes = [scope for scope, _ in factors]
    edges = edges_of(scopes)
    order, width = elimination_order(len(cards), edges, cards)
    entries = float(table_entries(edges, cards, order)) if width <= MAX_LOG2_TABLE else math.inf
    simple = NetworkWay(
        "elimination",
        entries / ENTRIES_PER_SECOND + 1e-4 * len(cards),
        8.0 * entries,
        f"variable elimination with tables of 2^{width:.0f} entries",
        lambda threads, tick: eliminate_factors(cards, factors, order),
    )
    return faster_ways(cards, factors, simple, max_seconds, counting=counting)


def faster_ways(
    cards: Sequence[int], factors: Sequence[Factor], simple: NetworkWay, max_seconds: float, *, counting: bool
) -> list[NetworkWay]:
    """Return the methods of `network_ways`, given simple elimination."""
    begin = time.thread_time()
    if simple.seconds <= AT_ONCE + _REDUCTION * len(cards) or jit_is_off():
        return [simple]
    from .contraction import contract  # Importing the kernels takes time.

    small = Reduced.of(cards, factors)
    if not small.cards:
        return [
            NetworkWay("elimination", 0.0, 0.0, "variables summed one by one", lambda threads, tick: small.constant)
        ]
    plan = best_contraction(small.cards, small.factors, max_seconds)
    contraction = simple
    if plan is not None and plan.seconds < simple.seconds:
        contraction = NetworkWay(
            "elimination",
            plan.seconds,
            plan.bytes,
            _described(plan),
            lambda threads, tick: small.constant + contract(small.cards, small.factors, plan, threads, tick),
        )
    if not counting or not is_deterministic(small.factors) or contraction.seconds <= min(_SURE, max_seconds):
        return [contraction]
    if not is_installed():
        size = f"{contraction.size} (counting may be faster: {INSTALL})"
        return [contraction._replace(size=size)]
    rest = max_seconds - contraction.seconds - (time.thread_time() - begin)
    if rest < 0.0:
        return [_counting(small, max_seconds), contraction]
    if rest < _LEAST_COUNTING:
        return [contraction, _counting(small, max_seconds)]
    first = min(contraction.seconds, rest)
    return [_counting(small, first), contraction, _counting(small, max_seconds)]


class Reduced(NamedTuple):
    """A network after reduction: the remaining variables, their factors, and ln of the constant summed out."""

    variables: list[int]
    cards: list[int]
    factors: list[Factor]
    constant: float

    @classmethod
    def of(cls, cards: Sequence[int], factors: Sequence[Factor], bound: float = _BOUND) -> Reduced:
        """Reduce a network."""
        network = Network(cards, factors)
        network.reduce(bound)
        left = sorted(network.alive)
        place = {v: k for k, v in enumerate(left)}
        kept = [(tuple(place[v] for v in scope), table) for scope, table in network.factors.values()]
        return cls(left, [network.cards[v] for v in left], kept, math.fsum(network.constants))


def cheapest_order(cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> tuple[list[int], float]:
    """Return an order of elimination and log2 of the entries of its tables, from a search if they are many."""
    edges = edges_of(scopes)
    order, width = elimination_order(len(cards), edges, cards, stop_above=_HOPELESS)
    entries = math.log2(max(1, table_entries(edges, cards, order))) if width <= _HOPELESS else math.inf
    if entries <= _FEW or jit_is_off():
        return order, entries
    from .search import search_order

    found = search_order(len(cards), edges, cards, seconds=_SEARCH, below=min(entries, _HOPELESS))
    return (order, entries) if found is None else found


def best_contraction(cards: Sequence[int], factors: Sequence[Factor], max_seconds: float) -> Contraction | None:
    """Return the fastest contraction found, or None if none fits in memory."""
    from .contraction import plan_contraction
    from .search import search_order

    scopes = [scope for scope, _ in factors]
    edges, memory = edges_of(scopes), _MEMORY * free_memory()
    order, width = elimination_order(len(cards), edges, cards, stop_above=_HOPELESS)
    plans = [plan_contraction(cards, scopes, order, memory, max_seconds)] if width <= _HOPELESS else []
    known = min((plan.seconds for plan in plans if plan is not None), default=math.inf)
    seconds = min(_SEARCH, _SEARCH_SHARE * known, 0.1 * max_seconds)
    found = search_order(len(cards), edges, cards, seconds=seconds, below=_HOPELESS)
    if found is not None:
        plans.append(plan_contraction(cards, scopes, found[0], memory, max_seconds))
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.seconds, default=None)


def _described(plan: Contraction) -> str:
    largest = f"variable elimination with tables of 2^{math.log2(max(1.0, plan.largest)):.0f} entries"
    return largest if plan.slices == 1 else f"{largest}, {plan.slices} times"


def counting_way(cards: Sequence[int], factors: Sequence[Factor], seconds: float) -> NetworkWay:
    """Return the method that counts the solutions of a network within a time limit."""
    return _counting(Reduced.of(cards, factors), seconds)


def _counting(small: Reduced, seconds: float) -> NetworkWay:
    memory = min(_COUNTING_MEMORY, _MEMORY * free_memory())

    def run(threads: int, tick: Tick) -> float:
        return small.constant + count_log_z(encode(small.cards, small.factors), seconds, memory, tick)

    return NetworkWay("counting", seconds, memory, f"weighted model counting within {seconds:.3g} s", run)
