"""Training for the free run: hyper-parameters, points and mean that minimise the simulation error.

One-step training chooses a model that predicts y[k] from measured outputs. Fed with its own
predictions (a simulation, here called free run) such a model may drift or diverge. `sysid.FreeRun`
(`training.py`) chooses the model by the error of its simulation instead:

1. *Segments* (`sysid.simulation.segments`). The samples are cut where one does not follow the
   other. A segment knows the outputs before its first sample, so that it can be simulated from
   there: the outputs are fed back, the inputs (and other outputs) are taken as measured.
2. *Saturation* (`calibration.find_saturation`). An output that repeats its extreme value exactly,
   in several runs, saturates there. The simulation stays within these limits, and a saturated
   sample is only a bound of the target.
3. *Candidates* (`candidate.py`). A candidate is a function
   ``f(x) = m(x) + sum_j w_j k(z(x), z_j)`` with a linear mean m and at most `budget` points z_j.
   Its free run is compiled.
4. *Cross-validation* (`training.find_best`). The segments are cut into contiguous folds. Every
   estimator of `routes` is fitted to the samples around each fold and simulates the fold, and so is
   the linear model (`linear_model.LinearModel`, by the error one step ahead and by that of the free
   run). The estimator with the smallest sum of squares so far does the next fold, so that one that
   cannot win any more costs nothing. An estimator that cannot fit the samples raises a `Refusal`,
   which is reported; any other error ends the training. Other processes begin fits that are likely
   to be needed next. Samples of a fold that go far beyond those around it are learned, not held
   out (`segments.learn_beyond`). `FreeRun.compare_lags` does the same with several lags and cheaper
   versions of the estimators (`Estimator.quick`).

   - `ProfileSearch` (`profile_search.py`) suits long memories, strong noise and short records. The
     length scales of the lags of a signal follow a profile of two numbers. Given the
     hyper-parameters, weights and linear trend follow from one Bayesian regression, and the model
     simulates blocks of the samples that the regression left out. Nelder and Mead's simplex
     minimises the error of these simulations over the hyper-parameters, for each kernel that does
     not fall behind. For a plant that integrates, `DifferenceSearch` does the same with differences
     of the outputs.
   - `OutputErrorRefinement` (`refinement.py`) suits few lags and many samples.
     Levenberg-Marquardt minimises the error of the simulation itself over linear part, weights and
     the directions in which the function varies. It uses exact sensitivities of the free run
     (`output_error.py`) on windows of the records (`windows.py`). The first directions are those
     of the gradient of the function (`metric.py`). A rough and a smooth kernel compete.

5. *Choice* (`training.FreeRun`). The estimator with the smallest held-out error is fitted to all
   segments. Its free run must stay within the range of the samples, widened by half of that range
   on both sides (`candidate.find_runaway`). This is checked for all segments and, with the longest
   segment, for twice the segment in a row, larger inputs, disturbed inputs, and other first
   outputs. If it fails, unless only because inputs exceed those of the samples, the next best
   estimator is taken. The estimators choose among their own stages by the stricter rule. Outside
   of that range the simulation of the final model is held at the end of the range, and these
   samples are counted (`sysid.Forecast.n_held`).
6. *Noise and bands* (`calibration.calibrate`). The noise is estimated by the changes from one
   residual of the free run to the next. An error of the function is fed back, so that a one-step
   likelihood does not show how wide the band of a simulation is. Functions are drawn from the
   posteriors of the cross-validation and simulated; one factor of their variance is chosen such
   that the 95 % band covers 95 % of the held-out samples.
7. *Initial model* (`Candidate.initial_model`). The points get pseudo targets. With them, and with
   the calibrated noise and kernel variance, the posterior mean of the online GP is exactly the
   function of the candidate.
8. *Bands by horizon* (`sysid.simulation.bands`). The fits of the cross-validation predict and
   simulate the folds that they left out. Many steps ahead, the bands of the initial model are
   widened or narrowed by the quantiles of these errors relative to its spread. A fit has chosen
   everything from fewer samples than the model, metric and points included, and one of them may
   fail; so the factor is the median over the folds (`bands.typical`). One step ahead, which a fit
   to the free run leaves open, the errors are taken relative to the spread of the fit itself: the
   model is more certain at samples that it has learned. Every model of records is calibrated in
   such a way (`sysid.Identification.calibrate`).
"""
