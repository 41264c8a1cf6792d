"""Common parts of the experiments: models, seeds, runs, and the free energies of many models from few calls."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..checks import needs_gpu, one_of
from ..engines.batch import by_shape
from ..engines.plan import Plan, make_plan
from ..engines.plans import log_z0_of, make_plans
from ..exact.batch import exact_of_many
from ..examples import rbm_gaussian, rbm_hopfield
from ..files.store import Row
from ..gpu.device import open_device
from ..models.model import MRF
from ..models.stacked import Stack
from ..options import ENGINES, Engine, Transition
from ..parallel.threads import Tick
from ..running.session import Session

VISIBLE = 20
EXACT_SECONDS = 0.02  # Approximate time of an exact sum over 2^20 states on one core.
MAKERS = {"gaussian": rbm_gaussian, "hopfield": rbm_hopfield}


class Setting(NamedTuple):
    """One model at one temperature."""

    instance: int
    model: str
    hidden: int
    inv_t: float


class Run(NamedTuple):
    """Chains of one model with K = `steps`, whose weights give the free energy by AIS, by mAIS-V, or by both."""

    steps: int
    methods: tuple[str, ...]
    seed: int
    transition: Transition = "gibbs"

    @property
    def names(self) -> list[str]:
        """Names of the methods in the results."""
        suffix = "+mh" if self.transition == "metropolis" else ""
        return [method + suffix for method in self.methods]

    def options(self, chains: int, engine: Engine) -> dict[str, Any]:
        """Return the options of the plan, without the seed."""
        method = "ais" if "ais" in self.methods else "mais-v"
        return dict(method=method, steps=self.steps, chains=chains, transition=self.transition, engine=engine)


def check_engine(engine: object) -> None:
    """Raise a ValueError, before any work, if an engine does not exist or there is no GPU for it."""
    one_of(engine, ENGINES, "engine")
    if needs_gpu(engine):
        open_device()


def derive(seed: int, *words: Any) -> int:
    """Return a 64-bit seed derived from a seed and words; different words give independent seeds."""
    text = "/".join(map(str, (seed, *words)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def make_models(name: str, seed: int, settings: Sequence[Setting]) -> list[MRF]:
    """Return the RBMs of settings; an instance has the same weights at all temperatures."""
    drawn: dict[Any, MRF] = {}
    groups: dict[Any, list[int]] = {}
    for number, (instance, kind, hidden, _) in enumerate(settings):
        groups.setdefault((kind, hidden), []).append(number)
        if (instance, kind, hidden) not in drawn:
            own = derive(seed, name, "model", kind, hidden, instance)
            drawn[instance, kind, hidden] = MAKERS[kind](VISIBLE, hidden, seed=own)
    found: list[Any] = [None] * len(settings)
    for numbers in groups.values():
        chosen = [drawn[settings[i][:3]] for i in numbers]
        w, b, c = (np.stack([getattr(x, part) for x in chosen]) for part in ("weights", "visible_bias", "hidden_bias"))
        temperatures = np.array([1.0 / settings[i].inv_t for i in numbers])
        units = chosen[0].visible_units, chosen[0].hidden_units
        for i, model in zip(numbers, Stack(w, b, c, units, temperatures).models(0, len(w)), strict=True):
            if isinstance(model, Exception):
                raise model
            found[i] = model
    return found


def exact_rows(models: Sequence[MRF], settings: Sequence[Setting], engine: Engine, tick: Tick) -> list[Row]:
    """Return the exact free energies as rows."""
    where = engine if needs_gpu(engine) else "auto"
    rows = []
    for setting, log_z in zip(
        settings, exact_of_many(models, method="enumeration", engine=where, tick=tick), strict=True
    ):
        if isinstance(log_z, Exception):
            raise log_z
        rows.append(Row(*setting, 0, "exact", np.array([-float(log_z)]), None))
    return rows


def seconds_of(models: Sequence[MRF], runs: Sequence[Run], chains: int, engine: Engine) -> float:
    """Return the estimated time of one run for each model, on one core, in seconds."""
    plans = [make_plan(model, seed=0, **run.options(chains, engine)) for model, run in zip(models, runs, strict=True)]
    return sum(chains * plan.seconds_per_chain for plan in plans)


def sample_rows(
    models: Sequence[MRF],
    settings: Sequence[Setting],
    runs: Sequence[Run],
    chains: int,
    trials: int = 1,
    engine: Engine = "auto",
    tick: Tick = lambda fraction: None,
) -> list[list[Row]]:
    """Free energies of `trials` independent trials of N = `chains`, by one run for each model.

    The trials are consecutive chains of the run. Models of one shape with the same options run together. The seconds
    are CPU seconds of one trial; those of mAIS are unknown if it is computed together with AIS.
    """
    found: list[Any] = [None] * len(runs)
    groups: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run._replace(seed=0), []).append(number)
    for run, numbers in groups.items():
        plans: list[Any] = make_plans(
            [models[i] for i in numbers], [runs[i].seed for i in numbers], run.options(chains * trials, engine)
        )
        for plan in plans:
            if isinstance(plan, Exception):
                raise plan
        for members in by_shape(plans):
            rows = _rows_of([plans[i] for i in members], [settings[numbers[i]] for i in members], run, trials, tick)
            for i, own in zip(members, rows, strict=True):
                found[numbers[i]] = own
    return found


def _rows_of(plans: Sequence[Plan], settings: Sequence[Setting], run: Run, trials: int, tick: Tick) -> list[list[Row]]:
    """Run plans of one shape, and return the rows of each."""
    start = time.thread_time()
    results = Session(tick=tick).run_many(plans, plans[0].chains.count // trials)
    seconds = (time.thread_time() - start) / (trials * len(plans))
    rows = []
    for setting, result, log_z0 in zip(settings, results, log_z0_of(plans), strict=True):
        weights = [result.log_weights, *([] if result.marginal is None else [result.marginal])]
        own = []
        for name, log_means, cost in zip(run.names, weights, (seconds, None), strict=False):
            own.append(Row(*setting, run.steps, name, -log_z0 - log_means, cost))
        rows.append(own)
    return rows
