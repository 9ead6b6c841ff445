# The public names of `sysid`, and the files they live in: `__init__.py` imports each when it is
# first used.

from .data.csv import CsvFiles as CsvFiles
from .data.nonlinear_benchmarks import NonlinearBenchmark as NonlinearBenchmark
from .data.nonlinear_benchmarks import (
    from_nonlinear_benchmarks as from_nonlinear_benchmarks,
)
from .data.nonlinear_benchmarks import (
    to_nonlinear_benchmarks as to_nonlinear_benchmarks,
)
from .data.published import BostonData as BostonData
from .data.published import BoucWenData as BoucWenData
from .data.published import CascadedTanksData as CascadedTanksData
from .data.published import ConcreteData as ConcreteData
from .data.published import SilverboxData as SilverboxData
from .data.source import DataError as DataError
from .data.source import DataSource as DataSource
from .data.source import Recordings as Recordings
from .data.source import make_record as make_record
from .data.stored import StoredRecordings as StoredRecordings
from .errors import UserError as UserError
from .errors import UserTypeError as UserTypeError
from .export.python_file import export_python as export_python
from .gp.adaptation import Adaptive as Adaptive
from .gp.adaptation import Estimate as Estimate
from .gp.affine_map import AffineMap as AffineMap
from .gp.affine_map import Projection as Projection
from .gp.affine_map import Scaling as Scaling
from .gp.dictionary import UpdateReport as UpdateReport
from .gp.kernels import Kernel as Kernel
from .gp.kernels import Linear as Linear
from .gp.kernels import Matern32 as Matern32
from .gp.kernels import Matern52 as Matern52
from .gp.kernels import Product as Product
from .gp.kernels import SquaredExponential as SquaredExponential
from .gp.kernels import Sum as Sum
from .gp.marginal_likelihood import log_marginal_likelihood as log_marginal_likelihood
from .gp.mean import AutomaticMean as AutomaticMean
from .gp.mean import ConstantMean as ConstantMean
from .gp.mean import LinearMean as LinearMean
from .gp.mean import MeanFunction as MeanFunction
from .gp.mean import ZeroMean as ZeroMean
from .gp.online import OnlineGP as OnlineGP
from .gp.rules import AcceptAll as AcceptAll
from .gp.rules import Acceptance as Acceptance
from .gp.rules import Always as Always
from .gp.rules import Criterion as Criterion
from .gp.rules import Either as Either
from .gp.rules import ErrorThreshold as ErrorThreshold
from .gp.rules import ExceedsMinimum as ExceedsMinimum
from .gp.rules import Insertion as Insertion
from .gp.rules import Learning as Learning
from .gp.rules import LogPredictiveDensity as LogPredictiveDensity
from .gp.rules import MarginalLogLikelihood as MarginalLogLikelihood
from .gp.rules import MeanRelevance as MeanRelevance
from .gp.rules import Novelty as Novelty
from .gp.rules import PredictiveEntropy as PredictiveEntropy
from .gp.rules import PriorEntropy as PriorEntropy
from .gp.rules import Reference as Reference
from .gp.rules import VarianceThreshold as VarianceThreshold
from .gp.selection import Backward as Backward
from .gp.selection import Forward as Forward
from .gp.selection import Selection as Selection
from .gp.sparse import Approximation as Approximation
from .gp.sparse import InducingPoints as InducingPoints
from .gp.sparse import SparseGP as SparseGP
from .gp.sparse import fit_sparse as fit_sparse
from .gp.training import Fixed as Fixed
from .gp.training import Hyperparameters as Hyperparameters
from .gp.training import InitialSamples as InitialSamples
from .gp.training import MaximumAPosteriori as MaximumAPosteriori
from .gp.training import MaximumLikelihood as MaximumLikelihood
from .gp.training import Start as Start
from .gp.training import Training as Training
from .identification import Identification as Identification
from .identification import Settings as Settings
from .identified import IdentifiedModel as IdentifiedModel
from .identified import identify as identify
from .lag_choice import LagChoice as LagChoice
from .lag_choice import choose_lags as choose_lags
from .lag_choice import rank_lags as rank_lags
from .model.description import build as build
from .model.description import describe as describe
from .model.model import JointModel as JointModel
from .model.model import Model as Model
from .model.model import Origin as Origin
from .model.model import Prediction as Prediction
from .narx.from_dynamics import lags_from_dynamics as lags_from_dynamics
from .narx.lags import Narx as Narx
from .narx.lags import OnMissing as OnMissing
from .narx.lags import Orders as Orders
from .narx.lags import Target as Target
from .narx.record import Record as Record
from .narx.record import read_records as read_records
from .narx.window import LagWindow as LagWindow
from .simulation.forecast import Divergence as Divergence
from .simulation.forecast import Forecast as Forecast
from .simulation.forecast import RecordForecast as RecordForecast
from .simulation.forecast import forecast as forecast
from .simulation.forecast import free_run as free_run
from .simulation.propagation.gaussian import MomentMatching as MomentMatching
from .simulation.propagation.gaussian import Taylor as Taylor
from .simulation.propagation.monte_carlo import MonteCarlo as MonteCarlo
from .simulation.propagation.monte_carlo import (
    SequentialConditioning as SequentialConditioning,
)
from .simulation.propagation.pathwise import Pathwise as Pathwise
from .simulation.propagation.propagation import AboutPath as AboutPath
from .simulation.propagation.propagation import MeanOnly as MeanOnly
from .simulation.propagation.propagation import Propagation as Propagation
from .simulation.residuals import ResidualReport as ResidualReport
from .simulation.residuals import residual_tests as residual_tests
from .simulation.validation import Calibration as Calibration
from .simulation.validation import Validation as Validation
from .simulation.validation import calibration as calibration
from .simulation.validation import fit_percent as fit_percent
from .simulation.validation import (
    standardised_mean_squared_error as standardised_mean_squared_error,
)
from .simulation.validation import validate as validate
from .simulation_error.profile_search import DifferenceSearch as DifferenceSearch
from .simulation_error.profile_search import ProfileSearch as ProfileSearch
from .simulation_error.refinement import OutputErrorRefinement as OutputErrorRefinement
from .simulation_error.training import FreeRun as FreeRun
from .store import StoreError as StoreError
from .stream import Measurement as Measurement
from .stream import learn_from as learn_from

__all__: list[str]
__version__: str
