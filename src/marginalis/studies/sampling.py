"""Common parts of the experiments: models, seeds, and free energies of many trials from one run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..checks import Array, one_of
from ..engines.plan import make_plan
from ..exact import exact_log_z
from ..examples import rbm_gaussian, rbm_hopfield
from ..files.store import Row
from ..gpu import needs_gpu
from ..gpu.device import open_device
from ..models.model import MRF
from ..options import ENGINES, Engine, Method, Transition
from ..parallel.threads import Tick
from ..running.session import Session
from ..statistics.confidence import log_mean_exp

VISIBLE = 20
MAKERS = {"gaussian": rbm_gaussian, "hopfield": rbm_hopfield}


class Setting(NamedTuple):
    """One model at one temperature."""

    instance: int
    model: str
    hidden: int
    inv_t: float


def check_engine(engine: object) -> None:
    """Raise a ValueError, before any work, if an engine does not exist or there is no GPU for it."""
    one_of(engine, ENGINES, "engine")
    if needs_gpu(engine):
        open_device()


def derive(seed: int, *words: Any) -> int:
    """Return a 64-bit seed derived from a seed and words; different words give independent seeds."""
    text = "/".join(map(str, (seed, *words)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def make_model(name: str, seed: int, setting: Setting) -> MRF:
    """Return the RBM of a setting; an instance has the same weights at all temperatures."""
    own = derive(seed, name, "model", setting.model, setting.hidden, setting.instance)
    return MAKERS[setting.model](VISIBLE, setting.hidden, temperature=1.0 / setting.inv_t, seed=own)


def exact_row(model: MRF, setting: Setting, engine: Engine = "auto") -> Row:
    """Return the exact free energy as a row."""
    where = engine if needs_gpu(engine) else "auto"
    return Row(*setting, 0, "exact", 0, -exact_log_z(model, method="enumeration", threads=1, engine=where), None)


def sample_rows(
    model: MRF,
    setting: Setting,
    steps: int,
    methods: Sequence[str],
    seed: int,
    chains: int,
    trials: int = 1,
    transition: Transition = "gibbs",
    engine: Engine = "auto",
    tick: Tick = lambda fraction: None,
) -> list[Row]:
    """Free energies of `trials` independent trials of N = `chains`, by AIS, mAIS-V, or both along one path.

    The trials are consecutive chains of one run, so there is only one set-up. The seconds are CPU seconds of one trial;
    those of mAIS are unknown if it is computed together with AIS.
    """
    method: Method = "ais" if "ais" in methods else "mais-v"
    plan = make_plan(
        model, method=method, steps=steps, chains=chains * trials, transition=transition, seed=seed, engine=engine
    )
    start = time.thread_time()
    own, marginal, _ = Session(tick=tick).run(plan)
    seconds = (time.thread_time() - start) / trials
    suffix = "+mh" if transition == "metropolis" else ""
    found: dict[str, tuple[Array, float | None]] = {}
    found[method.removesuffix("-v")] = own, seconds
    if marginal is not None and "mais" in methods:
        found["mais"] = marginal, None
    log_z0 = plan.path.base.log_z(model)
    rows = []
    for name, (log_weights, cost) in found.items():
        free = -log_z0 - log_mean_exp(log_weights.reshape(trials, chains), axis=1)
        rows += [Row(*setting, steps, name + suffix, t, float(f), cost) for t, f in enumerate(free)]
    return rows
