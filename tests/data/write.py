"""Write the files of this folder, and the predictions of their models, with the installed version.

``python tests/data/write.py FOLDER`` writes them into a new folder. The script uses commands and
public names only, except for the start of a model: it has to run with every version.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite.binding as llvm
import numpy as np
import pandas as pd

import sysid
from simulators import CascadedTanks, simulate
from sysid.gp.training import Points
from sysid.model.model_file import start_to_dataset

# Budget of a model that is made here.
MODEL_BUDGET = 7
# Samples that such a model learns before it is saved.
N_LEARNED_SAMPLES = 40
# Samples that every model of a file learns after it was loaded.
N_FURTHER_SAMPLES = 20
# Samples of the record of the tanks, and how many of them hold one value of the input.
N_TANKS_SAMPLES = 400
N_HELD_SAMPLES = 20
# Samples of the record of the identified models.
N_RECORD_SAMPLES = 300
# Files that hold no model.
FILES_WITHOUT_MODEL = ("start", "trajectory")
# A number that is no binary fraction.
THIRD = 1 / 3
MODEL_ORIGIN = sysid.Origin(0.5, {"y": "m", "u": "N"}, 0.1, 2.0, (-1.0, 3.0), N_LEARNED_SAMPLES)
MODEL_KERNEL = sysid.SquaredExponential(1.3, (1.0, 2.0, 0.7))

# The order of the draws decides what the files hold.
generator = np.random.default_rng(0)


# --- models of every kind -------------------------------------------------------------------------


def learned_model(
    scaling,
    mean,
    kernel,
    target="y",
    outputs=("y",),
    limits=(-np.inf, np.inf),
    bands=(),
    **options,
):
    """Return a model of three features that has learned samples."""
    n_input_lags = 3 - len(outputs)
    narx = sysid.Narx(dict.fromkeys(outputs, 1), {"u": n_input_lags}, target)
    gp = sysid.OnlineGP(kernel, noise_variance=0.01, budget=MODEL_BUDGET, **options)
    model = sysid.Model(narx, scaling, mean, gp, MODEL_ORIGIN, limits, bands)
    x = generator.normal(size=(N_LEARNED_SAMPLES, 3))
    y = np.sin(x @ (1.0, 0.5, -0.3)) + 0.2 * x[:, 0]
    model.update_many(x, y)
    return model


def identified_model(**settings):
    """Return a model of a short record of a plant with a saturated input."""
    u = generator.normal(size=N_RECORD_SAMPLES)
    y = np.zeros(N_RECORD_SAMPLES)
    for k in range(2, N_RECORD_SAMPLES):
        y[k] = 0.7 * y[k - 1] - 0.1 * y[k - 2] + 0.5 * np.tanh(u[k - 1])
    y += 0.01 * generator.normal(size=N_RECORD_SAMPLES)
    narx = sysid.Narx({"y": 2}, {"u": 1})
    return sysid.identify((u, y), narx, dt=0.1, budget=12, **settings).model


def models_of_every_kind():
    """Return models by the names of their files, with maps, means, kernels and rules of all kinds.

    The models of the two outputs are made first.
    """
    identity = sysid.AffineMap.identity(3)
    with_constant_feature = sysid.AffineMap(
        np.array([0.1, -0.2, 4.0]), np.array([2.0, 0.5, 1.0]), (2,)
    )
    projection = sysid.AffineMap.of_matrix([THIRD, -0.1, 0.2], np.arange(6.0).reshape(2, 3) / 7)
    product = sysid.Product(
        [sysid.Matern52(1.1, (1.0, 2.0, 0.5)), sysid.Matern32(0.7, (1.0, 0.5, 2.0))]
    )
    sum_of_kernels = sysid.Sum([sysid.Linear(0.3, (1.0, 0.1, 0.2)), product])
    acceptance = sysid.ExceedsMinimum(sysid.MeanRelevance(), sysid.Reference.in_sample)
    fitted_mean = sysid.LinearMean((0.2, 0.1, -THIRD), 0.03, ridge=0.1)
    linear_mean = sysid.LinearMean((0.1, -0.2, 0.3), 0.4)
    of_two_outputs = []
    for name in ("y", "w"):
        of_two_outputs.append(learned_model(identity, linear_mean, MODEL_KERNEL, name, ("y", "w")))
    refinement = sysid.OutputErrorRefinement(stages=2)
    return {
        "model_scaling": learned_model(
            with_constant_feature,
            sysid.ConstantMean(0.3),
            MODEL_KERNEL,
            insertion=sysid.ErrorThreshold(0.05),
            gate=6.0,
            gate_opens_after=2,
        ),
        "model_linear_mean": learned_model(
            identity,
            fitted_mean,
            sum_of_kernels,
            insertion=sysid.Either(0.05, 0.02),
            acceptance=acceptance,
        ),
        "model_projection": learned_model(
            projection,
            sysid.ConstantMean(0.25),
            sysid.Matern52(1.0, (1.0, 2.0)),
            limits=(-0.5, 10.0),
            bands=((1, 1.25), (3, THIRD)),
        ),
        "model_forgetting": learned_model(
            identity,
            sysid.ZeroMean(),
            sysid.Matern32(1.0, (1.0, 0.5, 2.0)),
            learning="every_sample",
            forgetting=200.0,
        ),
        "model_two_outputs": sysid.JointModel(tuple(of_two_outputs)),
        "model_adaptive": identified_model(
            training=sysid.Adaptive(on_records=True), learning="every_sample"
        ),
        "model_free_run": identified_model(training=sysid.FreeRun(routes=(refinement,), folds=2)),
    }


def start_of_a_model():
    """Return the start of a model, with values that a text does not keep by chance."""
    kernel = sysid.Sum(
        [
            sysid.Linear(0.7, (THIRD, 2 / 3)),
            sysid.SquaredExponential(0.1 + 0.2, (THIRD, 2 / 3)),
        ]
    )
    points = Points(
        np.asfortranarray(np.arange(6.0).reshape(3, 2) / 7),
        np.array([1.0, -0.0, 1 / 9]),
    )
    return sysid.Start(
        scaling=sysid.AffineMap.of_matrix([THIRD, -0.0, 5e-324], np.arange(6.0).reshape(2, 3) / 7),
        mean=sysid.LinearMean((0.1, -0.2, 1e-300), THIRD),
        hyperparameters=sysid.Hyperparameters(kernel, 0.1, -12.3, ("a note",)),
        points=points,
        limits=(-np.inf, 10.0),
        bands=((1, THIRD),),
        report={"tried": [{"rmse": 1 / 7}]},
        stays=True,
    )


# --- results of commands --------------------------------------------------------------------------


def run_identify(folder, *options):
    """Run `sysid-identify` of this Python in a folder; return the folder of its results."""
    program = Path(sys.executable).with_name("sysid-identify")
    subprocess.run([program, *options, "hydra.run.dir=run"], cwd=folder, check=True)
    return folder / "run"


def write_lean_job(folder):
    """Write the lean output of a short run."""
    options = (
        "system=van_der_pol",
        "duration=220samples",
        "budget=6",
        "training.n_initial=60",
        "outputs=lean",
    )
    with TemporaryDirectory() as temporary:
        results = run_identify(Path(temporary), *options)
        shutil.copy(results / "job.nc", folder)


def tanks_table():
    """Return a record of the tanks with a sensor that is not linear."""
    n_levels = N_TANKS_SAMPLES // N_HELD_SAMPLES
    voltage = np.repeat(generator.uniform(1.5, 5.0, n_levels), N_HELD_SAMPLES)
    level = simulate(CascadedTanks(initial_upper=5.0), voltage).output[:, 0]
    level += 0.3 * np.sin(level) + 0.01 * generator.normal(size=N_TANKS_SAMPLES)
    return {
        "time": 4.0 * np.arange(N_TANKS_SAMPLES),
        "pump_voltage": voltage,
        "level": level,
    }


def write_model_beside_physics(folder):
    """Write a record and a model beside physics."""
    options = (
        "data=csv",
        "data.estimation=tanks.csv",
        "data.inputs=[pump_voltage]",
        "data.outputs=[level]",
        "data.time=time",
        "physics=cascaded_tanks",
        "physics.starts=1",
        "budget=10",
        "figures=false",
        "propagation=mean_only",
    )
    with TemporaryDirectory() as temporary:
        table = pd.DataFrame(tanks_table())
        table.to_csv(Path(temporary) / "tanks.csv", index=False)
        results = run_identify(Path(temporary), *options)
        shutil.copy(results / "trajectory.nc", folder)
        shutil.copy(results / "model.nc", folder / "model_physics.nc")


# --- predictions ----------------------------------------------------------------------------------


def predictions_of(path):
    """Return the predictions of the models of a file, before and after they learn samples."""
    predictions = {}
    for model in sysid.JointModel.load(path).models:
        normal = generator.normal(size=(N_FURTHER_SAMPLES, model.narx.n_features))
        regressors = model.scaling.offset + normal
        noise = 0.1 * generator.normal(size=N_FURTHER_SAMPLES)
        targets = model.predict(regressors).mean + noise
        mean, variance = model.predict(regressors)
        slot = model.update_many(regressors, targets)["slot"]
        mean_after, variance_after = model.predict(regressors)
        prefix = f"{path.stem}/{model.narx.target}"
        predictions[f"{prefix}/regressors"] = regressors
        predictions[f"{prefix}/targets"] = targets
        predictions[f"{prefix}/mean"] = mean
        predictions[f"{prefix}/variance"] = variance
        predictions[f"{prefix}/slot"] = slot
        predictions[f"{prefix}/mean_after"] = mean_after
        predictions[f"{prefix}/variance_after"] = variance_after
    return predictions


def main(folder):
    """Write all files into a new folder."""
    folder.mkdir(parents=True)
    write_lean_job(folder)
    write_model_beside_physics(folder)
    for name, model in models_of_every_kind().items():
        model.save(folder / f"{name}.nc")
    start_file = sysid.store.to_bytes(start_to_dataset(start_of_a_model()))
    (folder / "start.nc").write_bytes(start_file)
    expected = {"cpu": llvm.get_host_cpu_name()}
    for path in sorted(folder.glob("*.nc")):
        if path.stem not in FILES_WITHOUT_MODEL:
            expected |= predictions_of(path)
    np.savez_compressed(folder / "expected.npz", **expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
