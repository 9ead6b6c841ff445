"""Training for the free run: hyper-parameters, points and mean that minimise the simulation error.

One-step training chooses a model that predicts y[k] from measured outputs. Fed with its own
predictions such a model may drift or diverge. `sysid.FreeRun` (`training.py`) chooses the model by
the error of its simulation instead:

1. *Segments* (`sysid.simulation.segments`). The samples are cut where one does not follow the
   other. A segment knows the outputs before its first sample, so that it can be simulated from
   there: the outputs are fed back, the inputs (and other outputs) are taken as measured.
2. *Saturation* (`calibration.find_saturation`). An output that repeats its extreme value exactly, in several runs,
   saturates there. The simulation stays within these limits, and a saturated sample is only a bound
   of the target.
3. *Candidates* (`candidate.py`). A candidate is a function ``f(x) = m(x) + sum_j w_j k(z(x), z_j)`` with a linear mean
   m and at most `budget` points z_j. Its free run is compiled.
4. *Cross-validation* (`training.find_best`). The segments are cut into contiguous folds. Every estimator of `routes`,
   and the linear model (`linear_model.LinearModel`, by the error of one step and by that of the
   free run), is fitted to the samples around each fold and simulates the fold. The one with the
   smallest sum of squares so far goes on, so that one that cannot win any more costs nothing. An
   estimator that does not serve the samples raises a `Refusal`, which is reported; any other error
   ends the training. Other processes fit beforehand what is likely to be asked for. `FreeRun.
   compare_lags` does the same with several lags and cheaper versions of the estimators
   (`Estimator.quick`).

   - `ProfileSearch` (`profile_search.py`) serves long memories, strong noise and short records. The
     length scales of the lags of a signal follow a profile of two numbers. Given the
     hyper-parameters, weights and linear trend follow from one Bayesian regression, and the model
     simulates parts of the samples that the regression left out. Nelder and Mead's simplex
     minimises the error of these simulations over the hyper-parameters, for each kernel. For a
     plant that integrates `DifferenceSearch` does the same of differences of the outputs.
   - `OutputErrorRefinement` (`refinement.py`) serves few lags and many samples.
     Levenberg-Marquardt minimises the error of the simulation itself over linear part, weights and
     the directions in which the function varies, with exact sensitivities of the free run
     (`output_error.py`) on windows of the records (`windows.py`). The directions begin with those
     of the gradient of the function (`metric.py`).

5. *Choice*. The estimator with the smallest held-out error is fitted to all segments. Its free run must stay within
   the range of the samples and half as much again on both sides (`candidate.find_runaway`): of all
   segments, of the longest twice in a row, with inputs that are larger or disturbed, from other
   first outputs. Else the next best is taken. The estimators themselves choose among their stages
   by the same rule. Beyond that range the simulation of the model is held at its end, and counted
   (`sysid.Forecast.n_held`).
6. *Noise and bands* (`calibration.calibrate`). The noise is what changes from one residual of the free run to the next.
   An error of the function is fed back, too, so that a one-step likelihood does not say how wide
   the band of a simulation is. Functions are drawn from the posteriors of the cross-validation and
   simulated; one factor of their variance is chosen such that the 95 % band covers 95 % of the
   held-out samples.
7. *Initial model* (`Candidate.initial_model`). The points get pseudo targets for which the online GP, with the
   calibrated noise and kernel variance, has exactly the function of the candidate as its posterior
   mean.
8. *Bands by horizon* (`sysid.simulation.bands`). The fits of the cross-validation predict and simulate what they
   have not seen; by the quantiles of these errors over the spread of the initial model its bands
   are widened or narrowed, many steps ahead. These fits chose everything, the metric and the points
   too, from fewer samples than the model has, and one of them may fail: so the factor is the median
   over the parts (`bands.typical`). One step ahead, which a fit to the free run leaves open, it is
   over their own spread: the model is sure of what it has seen. Every model of records is
   calibrated in such a way (`sysid.Identification.calibrate`).
"""
