"""ln Z_b − ln Z_a along the direct path between two models of the same variables, with chains in both directions."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..checks import Array
from ..display import sketch
from ..display.words import decimals
from ..engines.plan import Plan, make_plan
from ..engines.recorder import Recorder
from ..exact.sampling import sample_visible
from ..models.annealed import shared_sides
from ..models.layered import as_model
from ..models.model import MRF
from ..options import RunOptions, filled_in, plan_options, takes_options
from ..paths.base import coupled_base
from ..random import REVERSE, stream
from ..results.estimate import run_plan
from ..results.record import Answer, Record
from ..results.written import finite
from ..running.session import Session, open_session
from ..statistics.bennett import Bennett, bennett, markov_bound
from ..statistics.confidence import relative_weights, unseen_reach, warnings_of
from ..statistics.resampling import systematic

_NOT_HERE = ("base", "resample", "populations", "summed")  # Options that this function lacks.
_DEFAULT_STEPS = 200  # Steps between the two models.
MIN_OVERLAP = 20.0  # Bennett's error is unreliable below this effective number of overlapping chains.


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Answer):
    """ln Z_b − ln Z_a by Bennett's acceptance ratio, from chains that go from a to b and from b to a."""

    forward_log_weights: Array  #: Chains from samples of a to b; their mean weight estimates Z_b/Z_a.
    reverse_log_weights: Array  #: Chains from samples of b to a; their mean weight estimates Z_a/Z_b.
    samples: tuple[str, str]  #: Sources of the states at a and at b: "exact, by …" or "approximate".
    record: Record  #: Options, seeds, engine and seconds of the run.
    start_log_weights: tuple[Array | None, Array | None] = (None, None)  #: States annealed to a and to b.
    rounding: float = 0.0  #: Possible common error of all log-weights by rounding.
    unseen: float = 0.0  #: See `Estimate.unseen`.

    @cached_property
    def _bennett(self) -> Bennett:
        ancestors = [None if x is None else _ancestors(x) for x in self.start_log_weights]
        return bennett(-self.forward_log_weights, -self.reverse_log_weights, *ancestors)

    @property
    def is_certified(self) -> bool:
        """Whether all chains started from exact independent samples of the two models."""
        return all(weights is None for weights in self.start_log_weights)

    @property
    def log_ratio(self) -> float:
        """ln Z_b − ln Z_a."""
        return -self._bennett.difference

    def __float__(self) -> float:
        return self.log_ratio

    @property
    def stderr(self) -> float:
        """Standard error of `log_ratio`, by Bennett's formula; copies of one annealed state count as one."""
        return max(self._bennett.stderr, self.unseen)

    @property
    def overlap(self) -> float:
        """Effective number of chains that contribute to the estimate, in the direction that has fewer of them."""
        return self._bennett.overlap

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of `log_ratio`."""
        reach = max(float(ndtri(0.975)) * self.stderr, unseen_reach(self.unseen), self.rounding)
        return self.log_ratio - reach, self.log_ratio + reach

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Bounds of `log_ratio` that hold together with probability 95 %; infinite unless all samples are exact."""
        if not self.is_certified:
            return -math.inf, math.inf
        low = markov_bound(self.forward_log_weights, 0.025)
        high = -markov_bound(self.reverse_log_weights, 0.025)
        return low, high

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the estimate, as sentences."""
        annealed = {end: x for end, x in zip("ab", self.start_log_weights, strict=True) if x is not None}
        found = []
        if annealed:
            found.append(
                f"the chains from {' and '.join(annealed)} start from states annealed to it, not from exact samples: "
                "phases that these have missed are missing in the result, and there are no bounds"
            )
        for end, weights in annealed.items():
            found += [f"the states annealed to {end}: {w.partition('; raise')[0]}" for w in warnings_of(weights)]
        if self.overlap < min(MIN_OVERLAP, len(self.forward_log_weights) / 2):
            found.append(f"only about {self.overlap:.1f} chains of one direction overlap with the other; raise steps")
        if self.bounds[0] > self.bounds[1]:
            found.append("the bounds of the two directions contradict each other")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "log_ratio": self.log_ratio,
            "stderr": finite(self.stderr),
            "interval": [finite(x) for x in self.interval],
            "bounds": [finite(x) for x in self.bounds],
            "overlap": self.overlap,
            "samples": list(self.samples),
            **self.record.to_dict(),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        digits = decimals(self.stderr)
        low, high = self.interval
        bounds = "bounds {:.{digits}f} to {:.{digits}f}".format(*self.bounds, digits=digits)
        if not self.is_certified:
            bounds = "no bounds"
        lines = [
            f"ln Z_b − ln Z_a = {self.log_ratio:.{digits}f} ± {self.stderr:.{digits}f}"
            f"   (95 % interval {low:.{digits}f} to {high:.{digits}f})",
            f"F_b − F_a = {-self.log_ratio:.{digits}f}   {bounds}   overlap {self.overlap:.1f} chains",
            f"{self.method}, {self.record}, {self.chains} chains each way, start: {', '.join(self.samples)}, "
            f"seed {self.seed}, {self.engine}, {self.seconds:.2f} s",
        ]
        return "\n".join(lines + [f"warning: {w}" for w in self.warnings])

    def _sketch(self) -> str:
        both = self.forward_log_weights, -self.reverse_log_weights
        return sketch.histogram(*both, at=[self.log_ratio], span=self.bounds, about="log-weights both ways, bounds")


@takes_options(leave_out=_NOT_HERE)
def difference(a: Any, b: Any, **options: Unpack[RunOptions]) -> Difference:
    """Return ln Z_b − ln Z_a of two models of the same variables, along the direct path between them.

    Chains run in both directions and start from samples of each model. The samples are exact if possible; otherwise
    they are the final states of chains annealed to the model, resampled by weight. In that case there is a warning, and
    there are no bounds.

    Parameters
    ----------
    a
        A model, or anything that `as_model` accepts.
    b
        Another model of the same variables.
    options
        Options of the run; `steps` is the number of steps between the two models, 200 by default.

    Returns
    -------
    Difference
        `log_ratio` = ln Z_b − ln Z_a with `stderr`, `interval`, bounds and warnings.
    """
    chosen = filled_in(options, leave_out=_NOT_HERE)
    begin = time.perf_counter()
    first, last = shared_sides(as_model(a, "a"), as_model(b, "b"))
    given = plan_options(chosen)
    given["base"] = coupled_base(first, last)
    if given["steps"] is None and given["schedule"] is None:
        given["steps"] = _DEFAULT_STEPS
    with open_session(chosen, "difference", first, last) as session:
        plan = make_plan(last, keep_whole=True, **given)
        at_a, weights_a, from_a = _samples(first, plan, session, 0)
        at_b, weights_b, from_b = _samples(last, plan, session, 1)
        forward = run_plan(plan.with_chains(start=at_a), session.part(0.0, 0.5))
        reverse = run_plan(plan.reversed(at_b), session.part(0.5, 1.0))
    return Difference(
        forward_log_weights=forward.log_weights,
        reverse_log_weights=reverse.log_weights,
        samples=(from_a, from_b),
        record=Record.of(plan, time.perf_counter() - begin, session.names),
        start_log_weights=(weights_a, weights_b),
        rounding=max(forward.rounding, reverse.rounding),
        unseen=forward.unseen,
    )


def _samples(model: MRF, plan: Plan, session: Session, end: int) -> tuple[Array, Array | None, str]:
    """Return states of the sampled side at one end of the path, their log-weights, and their source."""
    turned = model.transposed() if plan.path.is_turned else model
    seed = stream(stream(plan.chains.seed, REVERSE), 16 + end)
    drawn = sample_visible(turned, seed, plan.chains.numbers)
    if drawn is not None:
        return drawn[0], None, f"exact, by {drawn[1]}"
    method: Any = plan.method
    if method == "mais" and model.is_bipartite:
        method = "mais-h" if plan.path.is_turned else "mais-v"
    annealed = make_plan(
        model,
        keep_whole=True,
        method=method,
        steps=1000,
        chains=plan.chains.count,
        seed=seed,
        precision="double",
    )
    recorder = Recorder.of_final_states(annealed)
    log_weights = run_plan(annealed, session.part(0.0, 0.0), recorder).log_weights
    return recorder.values[0][_ancestors(log_weights)], log_weights, "approximate"


def _ancestors(log_weights: Array) -> NDArray[np.int64]:
    """Return the numbers of the states to copy, each in proportion to its weight."""
    return systematic(relative_weights(log_weights)[None], np.full((1, 1), 0.5))[0]
