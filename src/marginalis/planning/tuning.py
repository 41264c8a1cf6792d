"""The numbers of planning that studies have chosen, each with one sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """How thoroughly phases are searched for."""

    states: int  # chains of the sweeps at the model's own temperature
    sweeps: int  # that each of them takes
    pilot_chains: int  # of the longer pilots from the uniform base and from the biases; 0 for none
    pilot_steps: int
    components: int  # of the mixture, at most
    chains: int  # of each pilot from the mixture
    steps: int


@dataclass(frozen=True)
class Tuning:
    """What the search for phases and the choice of a path depend on."""

    # Searches, each of which costs about five times the one before: the first goes with every call.
    levels: tuple[Level, ...] = (
        Level(states=512, sweeps=30, pilot_chains=0, pilot_steps=0, components=32, chains=256, steps=32),
        Level(states=512, sweeps=100, pilot_chains=256, pilot_steps=250, components=48, chains=512, steps=150),
        Level(states=768, sweeps=200, pilot_chains=512, pilot_steps=400, components=64, chains=1024, steps=400),
    )
    # Share of the predicted cost of the answer that a deeper search may cost where mixtures promise something.
    deeper: float = 0.35
    # The same where they do not: lattices and glasses, whose phases independent units do not describe.
    deeper_without_promise: float = 0.1
    # A mixture promises something if its path costs less than this many times the plain one.
    promising: float = 4.0
    # Couplings of a variable, on average over the smaller side, above which a model counts as dense.
    dense: float = 16.0
    # Relative variance of a chain's weight at the answer's own number of steps, below which no search goes deeper.
    even: float = 1.0
    # Effective chains of a trial below which it cannot tell how even the weights of the answer will be.
    tells: float = 25.0
    # Standard error of a trial above which a search that promises something goes on.
    precise: float = 0.06
    # Times its own cost that an answer with uneven weights counts for, at most, where its steps and chains are given.
    uneven_costs: float = 8.0
    # Steps of an answer along a path from a mixture, at least, where no exact sum confirms it: with 16 to 128 of them
    # phases of half the weight were missed without a sign.
    mixed_steps: int = 1000
    # Chain·steps that any answer along such a path counts for.
    usual_chain_steps: float = 1e6
    # Share of each of the uniform base and the biases in a mixture.
    defence: float = 0.05
    # Shares after a pilot: what its chains brought, the shares before, and equal ones.
    brought: float = 0.7
    kept: float = 0.15
    # Effective chains of a pilot with which what they brought counts half as much as with very many.
    few_effective: float = 4.0
    # Rows that the ends of a pilot count for in a fit, per effective chain.
    rows_per_effective: float = 8.0
    # Means of a component stay this close to a state's end of the range, so that no component excludes a state.
    clip: float = 0.98
    # Weight of the mean of all states in the mean of a component, in rows.
    shrinkage: float = 0.5
    # Standard error up to which a mixture that sees no more acquits the plain path.
    acquits: float = 0.25
    # Standard errors that it may see more, and still acquit.
    acquits_within: float = 2.0
    # Times that kernels for lattices are faster than those that serve mixtures.
    lattices_faster: float = 8.0
    # Chains in a population of a trial with resampling.
    together: int = 32
    # Times the cost of the plain path that a path from a mixture may cost and still be preferred to an unproven one.
    worth_proving: float = 10.0
    # Populations up to which their effective number must be this share of them, for an interval without a warning.
    few_populations: int = 64
    effective_populations: float = 0.7
    # Chains of a trial of a plain path.
    trial_chains: int = 128
    # Chains of a trial from a mixture, at most.
    most_mixed: int = 4096
    # A trial has this many times fewer steps than the plan, within these limits.
    coarser: int = 8
    fewest_steps: int = 64
    most_steps: int = 1024
    # Features of the sampled side beyond which a mixture costs more than it may gain.
    widest: int = 4096
    # Seconds that an exact sum may take in any case, share of the estimate that it may take, and the most seconds.
    exact_seconds: float = 0.02
    exact_share: float = 0.1
    exact_most: float = 1.0
    # Operations per second of one thread, for predictions.
    operations_per_second: float = 5e10
    # Standard error of a trial, at least: a few weights cannot tell of less.
    least_error: float = 0.02
    # Standard errors between two estimates that disagree, and the same where one of them is exact.
    apart: float = 4.0
    apart_exactly: float = 2.5
    # ln(1 + r) below which the weights of a trial are even enough to trust its error.
    even_enough: float = 1.0986
    # ln(1 + r) that a trial predicts for the answer, above which populations are resampled.
    uneven: float = 0.2
    # ln(1 + r) at the plan's own steps, up to which the plain path is not improved on.
    nearly_even: float = 0.25
    # Share of the cost of a proven plain path below which a path from a mixture is preferred to it.
    worth: float = 0.5
    # Operations of an answer above which a cheaper path is looked for although an exact sum confirms the plain one.
    dear: float = 2e9


TUNING = Tuning()
