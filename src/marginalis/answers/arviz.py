"""Log-weights and samples in the format of ArviZ: an InferenceData, or a DataTree in its newer versions."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import numpy as np

from ..checks import a_kind, one_line
from ..results.estimate import Estimate
from .samples import Samples


def to_arviz(answer: Any) -> Any:
    """Convert samples or the log-weights of a run for ArviZ, which must be installed.

    Parameters
    ----------
    answer
        The result of `sample`: the group ``posterior`` then holds ``x`` with the dimensions chain, draw and feature. It
        has one chain of independent draws, and the labels as coordinates. Or the result of `estimate`: the group
        ``sample_stats`` then holds ``log_weight`` with the dimensions chain and draw, one independent weight per chain;
        `log_z` and related numbers are attributes.

    Returns
    -------
    arviz.InferenceData | xarray.DataTree
        The type depends on the installed version of ArviZ.
    """
    if not isinstance(answer, Samples | Estimate):
        raise ValueError(f"answer is {a_kind(answer)}; it must be what sample or estimate returned")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Some versions issue a warning about the next version on import.
        try:
            arviz = importlib.import_module("arviz")
        except ImportError:
            raise ValueError("to_arviz needs ArviZ: pip install arviz") from None
        groups: dict[str, dict[str, Any]]
        if isinstance(answer, Samples):
            groups = {"posterior": {"x": np.array(answer.rows)[None]}}
            labels = [x if isinstance(x, str | int) else one_line(x, 80) for x in answer.labels]
            more: dict[str, Any] = {"dims": {"x": ["feature"]}}
            if labels:
                more["coords"] = {"feature": labels}
            attributes: dict[str, Any] = {"source": answer.source, "is_exact": int(answer.is_exact)}
        else:
            groups = {"sample_stats": {"log_weight": np.array(answer.log_weights)[:, None]}}
            more = {}
            plain = answer.to_dict()
            attributes = {
                key: plain[key]
                for key in ("log_z", "stderr", "ess", "method", "steps", "seed")
                if plain[key] is not None
            } | {"log_z0": answer.log_z0}
        attributes["inference_library"] = "marginalis"
        if "posterior" in inspect.signature(arviz.from_dict).parameters:
            made = arviz.from_dict(**groups, **more)
        else:
            made = arviz.from_dict(groups, **more)
        for group in groups:
            made[group].attrs.update(attributes)
        return made
