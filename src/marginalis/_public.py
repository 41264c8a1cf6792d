"""The public names, where `marginalis` finds them when the first one is used; `as` says so to type checkers."""

from . import plots as plots
from .answer import Estimate as Estimate
from .answer import estimate as estimate
from .bases import data_base as data_base
from .bounds import Bounds as Bounds
from .bounds import bound as bound
from .curve import Curve as Curve
from .exact import ModelTooLarge as ModelTooLarge
from .exact import exact_log_z as exact_log_z
from .graphs import from_bqm as from_bqm
from .graphs import from_edges as from_edges
from .graphs import from_graph as from_graph
from .graphs import from_tables as from_tables
from .graphs import potts as potts
from .grids import ising_grid as ising_grid
from .grids import potts_grid as potts_grid
from .io import load as load
from .io import save as save
from .likelihood import LogLikelihood as LogLikelihood
from .likelihood import log_likelihood as log_likelihood
from .models import BipartiteMRF as BipartiteMRF
from .models import as_model as as_model
from .models import dbm as dbm
from .models import rbm as rbm
from .thermal import Thermodynamics as Thermodynamics
from .thermal import thermodynamics as thermodynamics
