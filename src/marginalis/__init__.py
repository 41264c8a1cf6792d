"""Free energies of Markov random fields by (marginalized) annealed importance sampling."""

# ruff: noqa: F403, F405
from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from ._public import *
    from ._public import MRF as BipartiteMRF  # noqa: F401

__version__ = "0.2.0"

__all__ = [
    "MRF",
    "Along",
    "Audit",
    "Bounds",
    "Curve",
    "Difference",
    "Estimate",
    "Estimates",
    "Expectations",
    "FactorModel",
    "FreeEnergy",
    "LogLikelihood",
    "LogLikelihoods",
    "ModelTooLarge",
    "ReLU",
    "Report",
    "Samples",
    "Thermodynamics",
    "Weights",
    "along",
    "as_model",
    "audit",
    "bound",
    "dReLU",
    "data_base",
    "dbm",
    "difference",
    "estimate",
    "estimate_many",
    "exact_log_z",
    "expectations",
    "free_energy",
    "from_bqm",
    "from_edges",
    "from_factors",
    "from_graph",
    "from_matrix",
    "from_pgmpy",
    "from_polynomial",
    "from_tables",
    "ising_grid",
    "load",
    "load_estimate",
    "load_updates",
    "log_likelihood",
    "plots",
    "potts",
    "potts_grid",
    "rbm",
    "report",
    "sample",
    "save",
    "states",
    "thermodynamics",
    "to_arviz",
]


if not TYPE_CHECKING:  # checkers know the names, and must hear of others

    def __getattr__(name):
        """Find the public names when the first is used: the command line must be in charge of signals before that."""
        if name == "BipartiteMRF":  # The name of the class in version 0.1, when all graphs were bipartite.
            import warnings

            warnings.warn("BipartiteMRF is now called MRF", DeprecationWarning, stacklevel=2)
            name = "MRF"
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _public

        globals().update({public: getattr(_public, public) for public in __all__})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
