"""Plans of many models with the same options, made in one pass where the models are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..models.model import MRF
from ..options import NOT_OF_A_PLAN, filled_in
from ..paths.path import Path
from .placement import surely_served
from .plan import Chains, Plan, make_plan

Failure = ValueError | TypeError


def make_plans(models: Sequence[MRF], seeds: Sequence[int], options: Mapping[str, Any]) -> list[Plan | Failure]:
    """Return for each model what `make_plan` returns for it with its own seed, or the error that it raises.

    `options` are those of `make_plan` without the seed. Dense models of spins or binary units with the same sizes have
    one plan in common, with their own model, seed and precision.
    """
    found: list[Any] = [None] * len(models)
    groups: dict[Any, list[int]] = {}
    if options.get("base") in (None, "uniform") and options.get("summed") is None:
        for number, model in enumerate(models):
            if is_plain(model):
                key = model.weights.shape, model.visible_units, model.hidden_units, model.layout is None
                groups.setdefault(key, []).append(number)
    for members in groups.values():
        if len(members) > 1:
            _plan_alike(models, seeds, options, members, found)
    for number, model in enumerate(models):
        if found[number] is None:
            found[number] = _plan_alone(model, seeds[number], options)
    return found


def log_z0_of(plans: Sequence[Plan]) -> Iterator[float]:
    """Yield ln Z_0 of every plan; those that are made together from a uniform base have the same."""
    known: dict[int, float] = {}  # Plans that are made together share the array of β.
    for plan in plans:
        if id(plan.betas) not in known or not plan.path.base.is_uniform:
            known[id(plan.betas)] = plan.path.log_z0
        yield known[id(plan.betas)]


def is_plain(model: MRF) -> bool:
    """Whether a model has spins or binary units on both sides of a bipartite graph, and dense couplings."""
    two = model.visible_units.values is not None and model.hidden_units.values is not None
    return two and type(model) is MRF and model.lateral is None and isinstance(model.weights, np.ndarray)


def _plan_alone(model: MRF, seed: int, options: Mapping[str, Any]) -> Plan | Failure:
    try:
        return make_plan(model, **{**options, "seed": seed})
    except (ValueError, TypeError) as error:
        return error


def _plan_alike(
    models: Sequence[MRF], seeds: Sequence[int], options: Mapping[str, Any], members: Sequence[int], found: list[Any]
) -> None:
    """Make the plans of models of one shape from that of one of them, except where placements may differ."""
    first = found[members[0]] = _plan_alone(models[members[0]], seeds[members[0]], options)
    if isinstance(first, Exception):
        return
    # A model without zeros is one connected part.
    whole: Any = np.stack([models[number].weights for number in members]).all(axis=(1, 2))
    chosen = filled_in({name: value for name, value in options.items() if name != "seed"}, leave_out=NOT_OF_A_PLAN)
    if chosen["engine"] != "numpy":
        forms = [models[number].partial_spin_form for number in members]
        whole &= surely_served(forms, None if chosen["precision"] == "double" else first.steps)
    alike = [number for number, same in zip(members, whole.tolist(), strict=True) if same]
    if not alike:
        return
    if alike[0] != members[0]:
        first = found[alike[0]] = _plan_alone(models[alike[0]], seeds[alike[0]], options)
    if isinstance(first, Exception) or (first.placement.engine == "numpy") != (chosen["engine"] == "numpy"):
        return
    path, chains = first.path, first.chains
    for number in alike[1:]:
        model = models[number]
        part = model.transposed() if path.is_turned else model
        own = Path(model, path.base, path.name, part, path.start, model.natural.offset, path.is_turned)
        # `dataclasses.replace` would take as long as all the rest.
        some = Chains(chains.first, chains.count, seeds[number], chains.populations, chains.resample_below)
        found[number] = Plan(own, first.betas, first.method, first.move, some, first.placement, first.schedule)
