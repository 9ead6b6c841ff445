"""Every kernel that can be chosen identifies a system, and its model tells its hyper-parameters."""

import numpy as np
import pytest
from hydra.utils import instantiate
from running import CONF, SHORT, configured, execute, summary_of

from sysid import Matern52, Model

KERNELS = sorted(path.stem for path in (CONF / "kernel").glob("*.yaml"))


@pytest.mark.parametrize("training", ["maximum_a_posteriori", "maximum_likelihood", "adaptive", "fixed"])
def test_every_training_takes_the_kernel_that_is_chosen(training):
    config = configured("kernel=matern_52", f"training={training}")
    assert instantiate(config.training, _convert_="all").kernel == Matern52()


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_runs(kernel, tmp_path):
    few = ("training.restarts=1", "training.max_iterations=15", "identified=0.4", "duration=2d", "budget=24")
    folder = execute(tmp_path, *SHORT, *few, "training.n_initial=20", f"kernel={kernel}")
    summary, model = summary_of(folder), Model.load(folder / "model.nc")
    assert np.isfinite(summary["smse"])
    assert summary["hyperparameters"]["kernel"] == model.hyperparameters["kernel"]
    words = kernel.replace("linear_plus_", "sum linear ").replace("linear_times_", "product linear ")
    described = str(summary["hyperparameters"]["kernel"]).lower()
    assert all(word in described for word in words.replace("_", "").split())
    assert all(name in described for name in model.narx.feature_names)
