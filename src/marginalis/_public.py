"""The public names, where `marginalis` finds them when the first one is used; `as` says so to type checkers."""

from . import plots as plots
from .answers.along import Along as Along
from .answers.along import along as along
from .answers.bounds import Bounds as Bounds
from .answers.bounds import bound as bound
from .answers.curve import Curve as Curve
from .answers.difference import Difference as Difference
from .answers.difference import difference as difference
from .answers.estimate import Estimate as Estimate
from .answers.estimate import load_estimate as load_estimate
from .answers.estimating import estimate as estimate
from .answers.expectations import Expectations as Expectations
from .answers.expectations import expectations as expectations
from .answers.likelihood import LogLikelihood as LogLikelihood
from .answers.likelihood import log_likelihood as log_likelihood
from .answers.likelihoods import LogLikelihoods as LogLikelihoods
from .answers.many import Estimates as Estimates
from .answers.many import estimate_many as estimate_many
from .answers.samples import Samples as Samples
from .answers.samples import sample as sample
from .answers.thermodynamics import Thermodynamics as Thermodynamics
from .answers.thermodynamics import thermodynamics as thermodynamics
from .exact import ModelTooLarge as ModelTooLarge
from .exact import exact_log_z as exact_log_z
from .files.model_files import load as load
from .files.model_files import save as save
from .files.rbms import load_updates as load_updates
from .models.data import states as states
from .models.factors import FactorModel as FactorModel
from .models.graphs import from_bqm as from_bqm
from .models.graphs import from_edges as from_edges
from .models.graphs import from_graph as from_graph
from .models.graphs import from_matrix as from_matrix
from .models.graphs import from_tables as from_tables
from .models.graphs import potts as potts
from .models.grids import ising_grid as ising_grid
from .models.grids import potts_grid as potts_grid
from .models.layered import as_model as as_model
from .models.layered import dbm as dbm
from .models.layered import rbm as rbm
from .models.model import MRF as MRF
from .paths.base import data_base as data_base
from .reporting.gather import Report as Report
from .reporting.gather import report as report

BipartiteMRF = MRF  # its name when bipartite graphs were all there was
