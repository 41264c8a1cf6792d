"""Exact ln Z, energy, entropy and heat capacity against β if they are cheap, for comparison with an estimate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..checks import Array
from ..exact import as_summable, cheapest, exact_log_z

_POINTS, _FEWEST = 121, 20  # Largest and least number of points of a curve.
STEP = 5e-3  # Step of the finite differences, relative to β.
# Coefficients of the finite differences for the first and second derivative.
SLOPE, BEND = np.array([1, -8, 0, 8, -1]) / 12.0, np.array([-1, 16, -30, 16, -1]) / 12.0


class ExactCurve(NamedTuple):
    """Totals for the whole model at each β, as in `Thermodynamics`."""

    betas: Array
    log_z: Array
    energy: Array
    entropy: Array
    heat_capacity: Array


def exact_curve(model: Any, betas: Array, seconds: float = 3.0) -> ExactCurve | None:
    """Return exact values between the least and the largest β, or None if they would take longer than `seconds`.

    U = −∂ ln Z/∂β and C = β² ∂² ln Z/∂β² are computed by finite differences of fourth order.
    """
    model = as_summable(model)
    high = float(np.max(betas))
    low = max(float(np.min(betas)), 1e-3 * high)
    try:
        _, way = cheapest(model, max_seconds=seconds)
        points = int(min(_POINTS, seconds / max(1e-9, 5.0 * way.seconds)))
        if points < _FEWEST or high == 0.0:
            return None
        places = np.geomspace(low, high, points)
        steps = places[:, None] * (1.0 + STEP * np.arange(-2, 3))
        models = (model.at_temperature(1.0 / b) for b in steps.ravel())
        log_z = np.array([exact_log_z(m, max_seconds=seconds) for m in models]).reshape(points, 5)
    except ValueError:  # The model is too large, or no exact method is accurate enough.
        return None
    energy = -(log_z @ SLOPE) / (STEP * places)
    heat_capacity = (log_z @ BEND) / STEP**2
    return ExactCurve(places, log_z[:, 2], energy, log_z[:, 2] + places * energy, heat_capacity)
