"""The numbers of planning that were chosen by studies, each with a sentence that says what it is.

Other modules read them as ``tuning.TOLERANCE.margin``, so that a study or a test can replace a whole value at once.

r is the relative variance of the weights. K is the number of steps, N the number of chains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """How thoroughly phases are searched for."""

    # Chains that move at the model's own temperature.
    states: int
    # Sweeps of each of these chains.
    sweeps: int
    # Chains of the longer pilots from the uniform base and from the biases; 0 for no such pilots.
    pilot_chains: int
    # Steps of these pilots.
    pilot_steps: int
    # Maximal number of components of the mixture.
    components: int
    # Chains of each pilot from the mixture.
    chains: int
    # Steps of each pilot from the mixture.
    steps: int

    @property
    def chain_steps(self) -> int:
        """Steps of all chains of the search, of one chain each."""
        pilots = 2 * self.pilot_chains * self.pilot_steps
        return self.states * self.sweeps + pilots + 2 * self.chains * self.steps


@dataclass(frozen=True)
class Tuning:
    """What the search for phases and the choice of a path depend on."""

    # The searches; the second costs about five times as much as the first, which is part of every call.
    levels: tuple[Level, ...] = (
        Level(states=512, sweeps=30, pilot_chains=0, pilot_steps=0, components=32, chains=256, steps=32),
        Level(states=512, sweeps=100, pilot_chains=256, pilot_steps=250, components=48, chains=512, steps=150),
    )
    # A round in which components are added to the mixture after these searches. Its pilots from the uniform base and
    # from the biases belong to the first round only. Four rounds usually made K·r of MNIST machines with 500 hidden
    # units two to five times smaller; single heavy weights can undo that.
    growth: Level = Level(
        states=768, sweeps=300, pilot_chains=512, pilot_steps=400, components=40, chains=1024, steps=500
    )
    # Maximal number of these rounds.
    rounds: int = 4
    # Exact samples may take this many times as long as the search that they replace.
    exact_samples: float = 2.0
    # Maximal number of components that are fitted to exact samples.
    components_exactly: int = 96
    # Share of the new components in a mixture to which components are added, before pilots refit the shares.
    grown: float = 0.5
    # A deeper search may cost this share of the predicted cost of the answer if mixtures are promising.
    deeper: float = 0.35
    # The same share if mixtures are not promising, as on lattices and glasses.
    deeper_without_promise: float = 0.1
    # A mixture is promising if its path costs less than this many times the plain path.
    promising: float = 4.0
    # A model is dense if its variables have more couplings than this, on average over the smaller side.
    dense: float = 16.0
    # No deeper search follows if r of a chain at the answer's own number of steps is below this value.
    even: float = 1.0
    # A trial with fewer effective chains than this cannot predict r of the answer.
    tells: float = 25.0
    # A promising search is continued while the standard error of its trial is above this value.
    precise: float = 0.06
    # If both paths agree and have standard errors below this value, their costs alone decide on a deeper search.
    agree_within: float = 0.15
    # An answer with uneven weights, with given steps and chains, counts for at most this many times its own cost.
    uneven_costs: float = 8.0
    # Number of steps for which the search predicts how uneven the weights of an answer from a mixture will be.
    mixed_steps: int = 1000
    # Minimal chain·steps that the cost of an answer along such a path is counted as.
    usual_chain_steps: float = 1e6
    # Share in a mixture of the uniform base, and the same of the biases.
    defence: float = 0.05
    # The shares after a pilot are a sum of three parts: the weight that its chains found, the shares before, and equal
    # shares. This is the first part for a pilot with many effective chains.
    brought: float = 0.7
    # This is the second part, the shares before.
    kept: float = 0.15
    # With this many effective chains in a pilot, the first part is half as large.
    few_effective: float = 4.0
    # The final states of a pilot count as this many rows per effective chain in a fit.
    rows_per_effective: float = 8.0
    # Maximal mean of a component, relative to the end of the range, so that no component excludes a state.
    clip: float = 0.98
    # Weight in rows of the mean of all states when the mean of a component is fitted.
    shrinkage: float = 0.5
    # A mixture can only confirm the plain path if its standard error is at most this value.
    acquits: float = 0.25
    # It confirms the plain path if its ln Z exceeds that of the plain path by at most this many standard errors.
    acquits_within: float = 2.0
    # Ratio of the speeds of the kernels for lattices and of those for mixtures.
    lattices_faster: float = 8.0
    # Chains in a population of a trial with resampling.
    together: int = 32
    # A path from a mixture is preferred to an unconfirmed plain path if it costs at most this many times as much.
    worth_proving: float = 10.0
    # An estimate with at most this many populations has a warning if too few of them are effective.
    few_populations: int = 64
    # Too few are effective if their effective number is below this share of all populations.
    effective_populations: float = 0.7
    # An estimate along a path from a mixture has a warning if fewer chains than this are effective.
    few_chains: float = 25.0
    # Chains of a trial of a plain path.
    trial_chains: int = 128
    # Maximal number of chains of a trial from a mixture.
    most_mixed: int = 4096
    # A trial has this many times fewer steps than the plan, within the two limits below.
    coarser: int = 8
    # Minimal steps of a trial.
    fewest_steps: int = 64
    # Maximal steps of a trial.
    most_steps: int = 1024
    # A sampled side with more features than this gets no mixture, which would cost more than it may gain.
    widest: int = 4096
    # Seconds that an exact sum may take in any case.
    exact_seconds: float = 0.02
    # Share of the predicted time of the estimate that an exact sum may take.
    exact_share: float = 0.1
    # Maximal seconds of an exact sum; 0 for no exact sums.
    exact_most: float = 10.0
    # Speed of one thread in operations per second, for predictions.
    operations_per_second: float = 5e10
    # Minimal standard error of a trial; smaller ones cannot be estimated from a few weights.
    least_error: float = 0.02
    # Two estimates disagree if they differ by more than this many standard errors.
    apart: float = 4.0
    # An estimate disagrees with an exact sum if they differ by more than this many standard errors.
    apart_exactly: float = 2.5
    # The error of a trial is reliable if ln(1 + r) of its weights is below this value, ln 3.
    even_enough: float = 1.0986
    # Chains are resampled if the trial predicts a ln(1 + r) of the answer above this value.
    uneven: float = 0.2
    # No better path than the plain one is looked for if its ln(1 + r) at the plan's own steps is below this value.
    nearly_even: float = 0.25
    # A path from a mixture is preferred to a confirmed plain path if it costs less than this share of it.
    worth: float = 0.5
    # If an answer takes more operations than this, a cheaper path is looked for even if the plain one is confirmed.
    dear: float = 2e9


@dataclass(frozen=True)
class ToleranceTuning:
    """What the number of steps and chains for a tolerance depends on."""

    # Goal for the half-width of the interval, relative to the tolerance, so that the first answer is narrow enough.
    margin: float = 0.9
    # Double precision is used for tolerances below this value, where rounding in single precision could show.
    double_precision: float = 1e-4
    # Steps of the plan that the choice of a path starts from; its trials have fewer.
    choice_steps: int = 512
    # Chains of a pilot.
    pilot_chains: int = 128
    # Chains of a pilot from a mixture with fields on both sides, where a few chains have most of the weight.
    pilot_chains_phases: int = 512
    # Populations of a pilot with resampling.
    pilot_populations: int = 8
    # Steps of the first pilot.
    first_steps: int = 32
    # Steps of the first pilot if the path starts from a mixture.
    first_steps_mixed: int = 8
    # The next pilot has this many times more steps if the path starts from a mixture or chains are resampled.
    steps_ratio: int = 4
    # On other paths the ratio follows from r of the last pilot; this is its lower limit.
    least_steps_ratio: int = 2
    # This is the upper limit of that ratio.
    most_steps_ratio: int = 8
    # Maximal steps of a pilot.
    most_steps: int = 1 << 24
    # A schedule is fitted to pilots with at most this many steps.
    most_fitted_steps: int = 512
    # Pilots end when r of their chains is at most this value.
    variance_pilots: float = 1.5
    # The same for a mixture with fields on both sides: r falls as 1/K at best there, and resampling does not help.
    variance_pilots_phases: float = 8.0
    # The same for r of populations.
    variance_pilots_populations: float = 2.0
    # Maximal predicted r of the chains of a plan; less even weights give less reliable intervals.
    variance_plan: float = 2.0
    # The same for r of populations.
    variance_plan_populations: float = 0.5
    # A path from a mixture is replaced by the plain one if a pilot with more steps than this still has uneven weights.
    most_steps_mixed: int = 100
    # Chains of the run to whose final states a mixture is fitted again after an answer with uneven weights.
    refit_chains: int = 4096
    # Chains are resampled if a pilot with at least this many steps has uneven weights and the next condition holds.
    resampled_steps: int = 256
    # The value that K·r of that pilot must exceed.
    resampled_cost: float = 2048.0
    # Chains in a population.
    population: int = 32
    # Populations are made larger if their weights are uneven in a pilot with at least this many steps.
    larger_steps: int = 2048
    # They are made this many times larger.
    larger_ratio: int = 4
    # Another pilot with populations pays if the chains after it cost at least this many times as much.
    pilots_worth: float = 20.0
    # A lower bound of ln Z takes this many times the chains of an interval: it lies 2.4 to 3 standard errors below.
    chains_for_bound: float = 2.5
    # Chains are run in multiples of this number, which fills the blocks of the engines.
    chain_unit: int = 32
    # Minimal number of chains; fewer would save little time, and their interval would be less reliable.
    least_chains: int = 256
    # The same along a path from a mixture of phases that no exact sum confirms. Fewer chains missed states of a few
    # per cent of Z that one chain in a thousand reaches, and their interval was narrow.
    least_chains_phases: int = 4096
    # The same if the weights of the trial are even.
    least_chains_even: int = 1024
    # The same if an exact sum has confirmed the path.
    least_chains_confirmed: int = 512
    # Minimal number of steps along such a path. With twice as many steps and half the chains, one chain with a heavy
    # weight has twice the share of the sum; with half as many steps, weights become heavier.
    least_steps_phases: int = 500
    # Minimal number of populations.
    least_populations: int = 32
    # Maximal number of chains, whose log-weights take a quarter of a GiB.
    most_chains: int = 1 << 25
    # The predicted number of chains of a path from phases is divided by this for the first run, too.
    first_part_phases: float = 2.0
    # This first run has at most so many chains; it shows what the mixture lacks better than the trial does.
    most_first_chains_phases: int = 6144
    # The predicted number of populations is divided by this for the first run, since a pilot predicts it roughly.
    first_part: float = 3.0
    # More chains than needed are run if they take at most this many operations in all: an answer that stops as soon as
    # the interval is narrow enough has an interval that is slightly too narrow.
    free_operations: float = 2e8
    # Maximal number of plans that are run, one after the other.
    attempts: int = 6
    # Another number of steps is considered if the interval is this many times wider than the goal (twice the chains).
    far_off: float = math.sqrt(2.0)
    # Components are added to a mixture of phases if the interval is this many times wider than the goal.
    far_off_phases: float = 1.5
    # This is also done if the weights of a run cannot be trusted. It is done after at most this many runs.
    growths: int = 3
    # Maximal bytes of the final states of a run that components may be fitted to.
    state_bytes: float = 2.0**28
    # A path from a mixture is improved or left if the interval is this many times wider than the goal.
    broken: float = 4.0
    # Runs that are predicted to take more seconds than this are announced.
    short_seconds: float = 1.0
    # With a budget, the clock is checked after about this many seconds of chains.
    batch_seconds: float = 0.5
    # Such a batch has at least this many chains if the time suffices: small ones are several times slower.
    batch_chains: int = 512


@dataclass(frozen=True)
class StepsTuning:
    """What the choice of K from the predicted relative variance r(K) depends on."""

    # Minimal number of steps on a path that does not start from a mixture.
    least: int = 4
    # The considered numbers of steps go down to those of the last pilot divided by 2 to this power.
    fewer: int = 3
    # The same for populations, a few of which do not predict r for fewer steps.
    fewer_populations: int = 0
    # They go up to those of the last pilot times 2 to this power.
    more: int = 2
    # They go up to 2 to this power if more steps help and the chains for fewer steps do not fit into the memory.
    most: int = 6
    # More steps help if ln(1 + r) falls faster than with this power of K.
    helpful_power: float = -0.5
    # The cost of a number of steps is multiplied by 1 + this times r: intervals of even weights are more reliable.
    penalty: float = 0.1
    # The same for r of populations, whose resampling adds variance.
    penalty_populations: float = 1.0


@dataclass(frozen=True)
class ChainsTuning:
    """How many chains are added if the interval is too wide."""

    # At least this share of the chains that were run.
    least_share: float = 0.1
    # This factor more than the ratio of interval and goal predicts.
    margin: float = 1.05
    # The ratio of interval and goal is counted as at most this value.
    most_ratio: float = 4.0
    # The same for a path from phases, where one heavy weight makes the interval of a few chains much too wide.
    most_ratio_phases: float = 1.7
    # A prediction from populations is rough, so another number of steps is considered at this many times `far_off`.
    far_off_populations: float = 2.0


@dataclass(frozen=True)
class PilotTuning:
    """The pilots that a schedule is fitted to, if the number of steps is given."""

    # Chains of each of the two pilots.
    chains: int = 64
    # A pilot has this many times fewer steps than the plan, within the two limits below.
    coarser: int = 4
    # Minimal steps of a pilot.
    fewest_steps: int = 32
    # Maximal steps of a pilot.
    most_steps: int = 1024
    # The path is cut into this many intervals, in each of which the variance per step length is taken as constant.
    bins: int = 32
    # Share of the length that is spread evenly over β, as a protection against what a pilot has missed.
    even: float = 0.1
    # The same for a path from a mixture with fields on both sides.
    even_phases: float = 0.2
    # Number of steps at the end of such a path that become shorter and shorter towards β = 1. With them, the weights of
    # models with few phases are twice as even, and the groups of chains with weights of 20 to 200 are gone.
    fine_steps: int = 40
    # At most one step in so many is one of these.
    fine_share: int = 8
    # Length of the last of them, in β.
    last_step: float = 1e-5


@dataclass(frozen=True)
class QuenchTuning:
    """The mixture that `base="quenches"` names."""

    # Short runs at the model's own temperature, from random states.
    chains: int = 512
    # Sweeps of each of these runs.
    sweeps: int = 30
    # Maximal number of components of the mixture.
    components: int = 32
    # Maximal number of states that the mixture is fitted to.
    most_rows: int = 4096
    # Share of the mixture that is uniform, as a protection against modes that no run has found.
    uniform: float = 0.1


TUNING = Tuning()
TOLERANCE = ToleranceTuning()
STEPS = StepsTuning()
CHAINS = ChainsTuning()
PILOTS = PilotTuning()
QUENCHES = QuenchTuning()
