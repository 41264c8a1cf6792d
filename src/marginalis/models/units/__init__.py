"""The kinds of variables of a side: `kind` defines their common interface, and each kind has a file.

AIS and mAIS need a log-normaliser and a draw given fields; along the path P_k only the fields change. Bases and
thermodynamics also need the first two derivatives of the log-normaliser: the mean, and its response to a change of the
fields. The package may import `checks` and the lowest layer only. Read `kind` first, then `two_state`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...checks import Array as Array
from ...checks import shown
from .categorical import Categorical as Categorical
from .gaussian import Gaussian as Gaussian
from .kind import Units as Units
from .rectified import PARAMETERS as PARAMETERS
from .rectified import RECTIFIED as RECTIFIED
from .rectified import Rectified as Rectified
from .rectified import ReLU as ReLU
from .rectified import dReLU as dReLU
from .two_state import BINARY as BINARY
from .two_state import SPIN as SPIN
from .two_state import TwoState as TwoState


def parse_units(
    word: object, features: int, precision: Array | Sequence[float] | None = None, argument: str = "units"
) -> Units:
    """Return the kind named by `word` for a side of this many features, or raise a ValueError.

    `word` is ``spin``, ``binary``, ``categorical:q`` (or ``categorical:q1,q2,…``) or ``gaussian``; only the last one
    takes a `precision`.
    """
    if isinstance(word, Units):
        return word
    kind, _, detail = word.partition(":") if isinstance(word, str) else ("", "", "")
    if kind != "gaussian" and precision is not None:
        raise ValueError(f"{argument} is {shown(word)}; only 'gaussian' units have a precision")
    if kind == "categorical":
        try:
            sizes = tuple(int(q) for q in detail.split(","))
        except ValueError:
            raise ValueError(f"{argument} is {shown(word)}; it must be 'categorical:q' with q a whole number") from None
        units = Categorical(sizes if len(sizes) > 1 else sizes[0])
        units.counts(features)
        return units
    if not detail and kind in ("spin", "binary"):
        return SPIN if kind == "spin" else BINARY
    if not detail and kind == "gaussian":
        given = np.ones(1) if precision is None else np.asarray(precision, float)
        if given.size not in (1, features):
            raise ValueError(f"{argument}: there are {given.size} precisions for {features} variables")
        gamma = np.broadcast_to(given.ravel(), (features,))
        if not (np.isfinite(gamma).all() and (gamma > 0).all()):
            raise ValueError(f"{argument}: precisions must be positive and finite")
        return Gaussian(tuple(gamma.tolist()))
    raise ValueError(
        f"{argument} is {shown(word)}; it must be one of binary, categorical:q, gaussian, spin, or mg.ReLU() or "
        "mg.dReLU()"
    )
