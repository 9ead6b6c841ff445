"""Write the files of this folder, and what their models predict, with the installed version.

``python tests/data/write.py FOLDER`` writes them into a new folder. The script uses commands and
public names only, but for the start of a model: it has to run with every version.
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

N_POINTS = 7  # budget of a model that is made here
N_BEFORE, N_AFTER = (
    40,
    20,
)  # samples that such a model learns before it is saved, and any model after
# samples of the record of the tanks, and of each of its input values
N_TANKS = 400
HOLD = 20
N_RECORD = 300  # samples of the record of the model for the free run
NO_MODELS = ("start", "trajectory")  # files
THIRD = 1 / 3  # no binary fraction
ORIGIN = sysid.Origin(0.5, {"y": "m", "u": "N"}, 0.1, 2.0, (-1.0, 3.0), N_BEFORE)
SQUARED = sysid.SquaredExponential(1.3, (1.0, 2.0, 0.7))

generator = np.random.default_rng(0)


def learned(
    scaling,
    mean,
    kernel,
    target="y",
    outputs=("y",),
    limits=(-np.inf, np.inf),
    bands=(),
    **options,
):
    """Model that has learned samples."""
    narx = sysid.Narx(dict.fromkeys(outputs, 1), {"u": 3 - len(outputs)}, target)
    gp = sysid.OnlineGP(kernel, noise_variance=0.01, budget=N_POINTS, **options)
    model = sysid.Model(narx, scaling, mean, gp, ORIGIN, limits, bands)
    x = generator.normal(size=(N_BEFORE, 3))
    model.update_many(x, np.sin(x @ (1.0, 0.5, -0.3)) + 0.2 * x[:, 0])
    return model


def models_of_every_kind():
    """Models by the names of their files, with maps, means, kernels and rules of all kinds."""
    plain = sysid.AffineMap.identity(3)
    constant = sysid.AffineMap(np.array([0.1, -0.2, 4.0]), np.array([2.0, 0.5, 1.0]), (2,))
    matrix = sysid.AffineMap.of_matrix([THIRD, -0.1, 0.2], np.arange(6.0).reshape(2, 3) / 7)
    product = sysid.Product(
        [sysid.Matern52(1.1, (1.0, 2.0, 0.5)), sysid.Matern32(0.7, (1.0, 0.5, 2.0))]
    )
    composed = sysid.Sum([sysid.Linear(0.3, (1.0, 0.1, 0.2)), product])
    in_sample = sysid.ExceedsMinimum(sysid.MeanRelevance(), sysid.Reference.in_sample)
    linear = sysid.LinearMean((0.2, 0.1, -THIRD), 0.03, ridge=0.1)
    mean = sysid.LinearMean((0.1, -0.2, 0.3), 0.4)
    pair = [learned(plain, mean, SQUARED, name, ("y", "w")) for name in ("y", "w")]
    return {
        "model_scaling": learned(
            constant,
            sysid.ConstantMean(0.3),
            SQUARED,
            insertion=sysid.ErrorThreshold(0.05),
            gate=6.0,
            gate_opens_after=2,
        ),
        "model_linear_mean": learned(
            plain,
            linear,
            composed,
            insertion=sysid.Either(0.05, 0.02),
            acceptance=in_sample,
        ),
        "model_projection": learned(
            matrix,
            sysid.ConstantMean(0.25),
            sysid.Matern52(1.0, (1.0, 2.0)),
            limits=(-0.5, 10.0),
            bands=((1, 1.25), (3, THIRD)),
        ),
        "model_forgetting": learned(
            plain,
            sysid.ZeroMean(),
            sysid.Matern32(1.0, (1.0, 0.5, 2.0)),
            learning="every_sample",
            forgetting=200.0,
        ),
        "model_two_outputs": sysid.JointModel(tuple(pair)),
        "model_adaptive": identified(
            training=sysid.Adaptive(on_records=True), learning="every_sample"
        ),
        "model_free_run": identified(
            training=sysid.FreeRun(routes=(sysid.OutputErrorRefinement(stages=2),), folds=2)
        ),
    }


def identified(**settings):
    """Model of a short record of a plant with a saturated input."""
    u = generator.normal(size=N_RECORD)
    y = np.zeros(N_RECORD)
    for k in range(2, N_RECORD):
        y[k] = 0.7 * y[k - 1] - 0.1 * y[k - 2] + 0.5 * np.tanh(u[k - 1])
    y += 0.01 * generator.normal(size=N_RECORD)
    return sysid.identify(
        (u, y), sysid.Narx({"y": 2}, {"u": 1}), dt=0.1, budget=12, **settings
    ).model


def start():
    """What a model starts from, with values that a text does not keep by chance."""
    return sysid.Start(
        scaling=sysid.AffineMap.of_matrix([THIRD, -0.0, 5e-324], np.arange(6.0).reshape(2, 3) / 7),
        mean=sysid.LinearMean((0.1, -0.2, 1e-300), THIRD),
        hyperparameters=sysid.Hyperparameters(
            sysid.Sum(
                [
                    sysid.Linear(0.7, (THIRD, 2 / 3)),
                    sysid.SquaredExponential(0.1 + 0.2, (THIRD, 2 / 3)),
                ]
            ),
            0.1,
            -12.3,
            ("a note",),
        ),
        points=Points(
            np.asfortranarray(np.arange(6.0).reshape(3, 2) / 7),
            np.array([1.0, -0.0, 1 / 9]),
        ),
        limits=(-np.inf, 10.0),
        bands=((1, THIRD),),
        report={"tried": [{"rmse": 1 / 7}]},
        stays=True,
    )


def run(folder, *options):
    """Run `sysid-identify` of this Python."""
    program = Path(sys.executable).with_name("sysid-identify")
    subprocess.run([program, *options, "hydra.run.dir=run"], cwd=folder, check=True)
    return folder / "run"


def write_results_of_commands(folder):
    """Write a lean job, and a record and a model beside physics."""
    job = (
        "system=van_der_pol",
        "duration=220samples",
        "budget=6",
        "training.n_initial=60",
        "outputs=lean",
    )
    signals = ("data.inputs=[pump_voltage]", "data.outputs=[level]", "data.time=time")
    physics = (
        "physics=cascaded_tanks",
        "physics.starts=1",
        "budget=10",
        "figures=false",
        "propagation=mean_only",
    )
    with TemporaryDirectory() as temporary:
        shutil.copy(run(Path(temporary), *job) / "job.nc", folder)
    with TemporaryDirectory() as temporary:
        voltage = np.repeat(generator.uniform(1.5, 5.0, N_TANKS // HOLD), HOLD)
        level = simulate(CascadedTanks(initial_upper=5.0), voltage).output[:, 0]
        level += 0.3 * np.sin(level) + 0.01 * generator.normal(
            size=N_TANKS
        )  # a sensor that is not linear
        table = {
            "time": 4.0 * np.arange(N_TANKS),
            "pump_voltage": voltage,
            "level": level,
        }
        pd.DataFrame(table).to_csv(Path(temporary) / "tanks.csv", index=False)
        found = run(Path(temporary), "data=csv", "data.estimation=tanks.csv", *signals, *physics)
        shutil.copy(found / "trajectory.nc", folder)
        shutil.copy(found / "model.nc", folder / "model_physics.nc")


def expectations(path):
    """Predictions of the models of a file, which learn from samples in between."""
    found = {}
    for model in sysid.JointModel.load(path).models:
        points = model.scaling.offset + generator.normal(size=(N_AFTER, model.narx.n_features))
        targets = model.predict(points).mean + 0.1 * generator.normal(size=N_AFTER)
        mean, variance = model.predict(points)
        slot = model.update_many(points, targets)["slot"]
        after = dict(zip(("mean_after", "variance_after"), model.predict(points), strict=True))
        own = {
            "regressors": points,
            "targets": targets,
            "mean": mean,
            "variance": variance,
            "slot": slot,
        } | after
        found |= {f"{path.stem}/{model.narx.target}/{name}": values for name, values in own.items()}
    return found


def main(folder):
    """Write everything."""
    folder.mkdir(parents=True)
    write_results_of_commands(folder)
    for name, model in models_of_every_kind().items():
        model.save(folder / f"{name}.nc")
    (folder / "start.nc").write_bytes(sysid.store.to_bytes(start_to_dataset(start())))
    expected = {"cpu": llvm.get_host_cpu_name()}
    for path in sorted(folder.glob("*.nc")):
        expected |= expectations(path) if path.stem not in NO_MODELS else {}
    np.savez_compressed(folder / "expected.npz", **expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
