"""Small models in files, records in CSV files, and how the tests run a validation."""

import json
from pathlib import Path

import numpy as np

from helpers.commands import compose_configuration
from sysid import (
    JointModel,
    LinearMean,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Scaling,
    SquaredExponential,
    make_record,
    store,
)

DT = 0.5  # s
UNITS = {"y": "V", "z": "degC", "u": "A"}
LAGS = {"outputs": {"y": 2}, "inputs": {"u": [1]}}
#: overrides that identify a model from records of u, y and z
RECORD_OVERRIDES = (
    "data=csv",
    "data.inputs=[u]",
    "data.dt=0.5",
    "data.units={y:V}",
    "narx=orders",
    "narx.na=1",
    "narx.nb=1",
)
SMALL_MODEL = (
    "training.n_initial=12",
    "training.restarts=1",
    "budget=15",
    "figures=false",
    "propagation=mean_only",
)
#: overrides of a small model whose hyper-parameters are given
GIVEN_MODEL = (
    "training=fixed",
    "training.noise_variance=1e-3",
    "training.length_scales=3",
    "training.n_initial=20",
    "budget=20",
    "propagation=mean_only",
    "linear_part=none",
)
#: the same with one lag of every signal
QUICK_MODEL = (*GIVEN_MODEL, "narx=orders", "narx.na=1", "narx.nb=1", "narx.nk=1")
ONE_OUTPUT = "data.outputs=[y]"
BOTH_OUTPUTS = ("data.outputs=[y,z]", "narx.target=all")
ONE_STEP_ONLY = ("propagation=mean_only", "figures=false", "horizons=[1]")


def coupled_signals(n, seed, size=1.0):
    """Return two coupled outputs and their input (n,), rounded as a file holds them."""
    rng = np.random.default_rng(seed)
    u = size * np.repeat(rng.uniform(-1, 1, n // 2 + 1), 2)[:n]
    y, z = 0.01 * rng.normal(size=(2, n))
    for k in range(2, n):
        y[k] += 0.6 * y[k - 1] - 0.1 * y[k - 2] + np.tanh(u[k - 1])
        z[k] += 0.5 * z[k - 1] + 0.4 * y[k - 1]
    signals = {"y": y, "z": z, "u": u}
    return {name: np.round(values, 6) for name, values in signals.items()}


def make_coupled_record(n, seed):
    """Return the coupled signals as a record."""
    return make_record(coupled_signals(n, seed), name="t", sampling_time=DT)


def write_record(path, n=50, seed=1, **changed):
    """Write a record as a CSV file; `changed` replaces or adds signals, None leaves one out."""
    signals = coupled_signals(n, seed) | changed
    columns = {name: values for name, values in signals.items() if values is not None}
    lines = [",".join(columns)]
    for row in np.column_stack(list(columns.values())).tolist():
        lines.append(",".join(map(repr, row)))
    path.write_text("\n".join(lines) + "\n")
    return path


def make_model(target="y", lags=LAGS, predict="change", n_points=14, **origin):
    """Return a model of one output, learned from 60 samples of the coupled signals."""
    record = make_record(coupled_signals(60, 7), name="estimation", sampling_time=DT, units=UNITS)
    narx = Narx(**lags, target=target, predict=predict)
    rows = narx.dataset(record)
    x = rows["regressor"].values
    y = rows["target"].values
    scaling = Scaling.fit(x)
    mean = LinearMean().fitted(x, y)
    kernel = SquaredExponential(0.05, (2.0,) * x.shape[1])
    gp = OnlineGP(kernel, noise_variance=2e-4, budget=n_points)
    gp.fit(scaling.transform(x[:n_points]), (y - mean(x))[:n_points])
    known = Origin(**origin) if origin else Origin.of(rows)
    return Model(narx, scaling, mean, gp, known)


def save_models(path, *models):
    """Write a file of models; without any, of the model of `make_model`."""
    JointModel(models or (make_model(),)).save(path)
    return path


def csv_overrides(outputs="y", inputs="u", dt=DT, **files):
    """Return the overrides of records in CSV files; a keyword is the role of its file."""
    roles = [f"data.{role}={path}" for role, path in files.items()]
    return (
        "data=csv",
        *roles,
        f"data.inputs=[{inputs}]",
        f"data.outputs=[{outputs}]",
        f"data.dt={dt}",
    )


def validation_overrides(path, *tests, outputs=("y",)):
    """Return the overrides for a model file and test files, with the units of the model."""
    units = ",".join(f"{name}:{UNITS[name]}" for name in (*outputs, "u"))
    test_files = ",".join(map(str, tests))
    data = csv_overrides(",".join(outputs), test=f"[{test_files}]")
    return (f"model={path}", *data, f"data.units={{{units}}}")


def run_validate(folder, *overrides):
    """Validate in this process into a new folder; return the content of validation.json."""
    from experiments.validate.run import run

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run(compose_configuration(*overrides, command="validate"), folder)
    return json.loads((folder / "validation.json").read_text())


def find_warning(content, words):
    """Return the only warning of a validation that contains the words."""
    (warning,) = [warning for warning in content["warnings"] if words in warning]
    return warning


def has_warning(content, words):
    """Return whether a warning of a validation or of a run contains the words."""
    return any(words in warning for warning in content["warnings"])


def read_validation(folder):
    """Return the groups of validation.nc by their name."""
    return store.read_groups(Path(folder) / "validation.nc", kind="validation")


def simulate_tanh(n):
    """Return u and y (n,) of y[k] = 0.8 y[k-1] + tanh(u[k-1]), measured with noise."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1])
    return u, y + 0.02 * rng.normal(size=n)
