"""Free energies of bipartite Markov random fields by (marginalized) annealed importance sampling."""

from .estimate import Estimate, estimate
from .exact import ModelTooLarge, exact_log_z
from .io import load, save
from .models import BipartiteMRF, rbm

__version__ = "0.1.0"

__all__ = [
    "BipartiteMRF",
    "Estimate",
    "ModelTooLarge",
    "estimate",
    "exact_log_z",
    "load",
    "rbm",
    "save",
]
