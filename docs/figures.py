"""Draw the three figures of the front page: ``python docs/figures.py [free_run] [online] [sweep]``.

They take about four minutes of processor time in all. What they are computed from lies in
``docs/build/figures``; a sweep that is there already is not computed again. The first figure reads
the measured record of the cascaded tanks (``SYSID_DATA``, or a download). Figures are transparent,
and their colours suit light and dark pages.
"""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulators import (
    PI,
    Building,
    SyntheticWeather,
    Trajectory,
    closed_loop,
    collect,
    predict_one_step,
)
from sysid import (
    AboutPath,
    CascadedTanksData,
    ErrorThreshold,
    Identification,
    Model,
    Narx,
    Pathwise,
    Settings,
    forecast,
    validate,
)
from sysid.lag_choice import best_arx_of_equal_lags
from sysid.simulation.linear_models import recursive_least_squares
from sysid.simulation.validation import Z_95

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
COMPUTED = DOCS / "build" / "figures"
#: colours that can be seen on white and on black
TEXT_COLOR = "#808080"
MEASURED_COLOR = "#9a9a9a"
MODEL_COLOR = "#d9741a"
LINE_COLOR = "#2b8cc4"
LIMIT_COLOR = "#3a9a55"
ALONE_COLOR = "#a05fb4"
STYLE = {
    "font.size": 10,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "front",  # the same figure gives the same file
    "axes.edgecolor": TEXT_COLOR,
    "axes.labelcolor": TEXT_COLOR,
    "axes.titlecolor": TEXT_COLOR,
    "text.color": TEXT_COLOR,
    "xtick.color": TEXT_COLOR,
    "ytick.color": TEXT_COLOR,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": TEXT_COLOR,
    "grid.alpha": 0.25,
    "axes.grid": True,
}
FIGURE_SIZE = (8.0, 3.0)  # width and height [inch]
TANKS_WINDOW = 50  # measured samples that a free run of the official test begins with
N_YEAR = 35041  # samples of 15 minutes
#: edges of the windows of the stream in which errors are averaged [d]: each is twice as long
WINDOW_EDGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 365.0)
N_RECURSIVE_LAGS = 12  # most lags of each signal of recursive least squares
N_ONLINE_SEEDS = 5
SWEPT_NOISE = (20, 30, 40, 50, 60)  # dB
N_SWEPT_SEEDS = 5


def draw_free_run() -> Figure:
    """Draw the free run of a model trained for it on the measured test record of two tanks."""
    folder = COMPUTED / "tanks"
    if not (folder / "model.nc").is_file():
        run("identify", "experiment=cascaded_tanks_simulation", f"hydra.run.dir={folder}")
    model = Model.load(folder / "model.nc")
    recordings = CascadedTanksData().load()
    record = recordings.test[0]
    propagation = AboutPath(Pathwise())
    simulated = forecast(
        model, record, horizon=None, window=TANKS_WINDOW, propagation=propagation
    ).records[0]
    measured = simulated.measured[:, 0]
    mean = simulated.mean[:, 0]
    noise_variance = model.gp.noise_variance
    scores = validate(measured, mean, simulated.variance[:, 0], noise_variance)
    line = best_arx_of_equal_lags(recordings.estimation, model.narx, recordings.inputs)
    of_line = line.free_run(dict(record), n_initial=TANKS_WINDOW)[simulated.sample]
    rmse_of_line = validate(measured, of_line).rmse
    half_width = Z_95 * np.sqrt(simulated.variance[:, 0] + noise_variance)

    figure, ax = new_figure()
    minutes = simulated.time / 60.0
    ax.plot(minutes, measured, color=MEASURED_COLOR, linewidth=3, label="measured")
    ax.plot(
        minutes,
        of_line,
        "--",
        color=LINE_COLOR,
        linewidth=1.2,
        label=f"best ARX: {rmse_of_line:.2f} V",
    )
    ax.plot(minutes, mean, color=MODEL_COLOR, linewidth=1.2, label=f"free run: {scores.rmse:.2f} V")
    ax.fill_between(
        minutes,
        mean - half_width,
        mean + half_width,
        color=MODEL_COLOR,
        alpha=0.3,
        linewidth=0,
        label=f"95 % band: covers {100 * scores.coverage_95:.0f} %",
    )
    ax.set(xlabel="time [min]", ylabel="level of the lower tank [V]", xlim=minutes[[0, -1]])
    put_legend_above(ax)
    return figure


def draw_online() -> Figure:
    """Draw the error of a building's online model over a year, as a multiple of the limit.

    Recursive least squares stands beside it. Lines are medians over the seeds, bands their range.
    """
    runs = [predict_year(seed) for seed in range(N_ONLINE_SEEDS)]
    windows = [*pairwise(WINDOW_EDGES)]
    centres = np.sqrt([first * last for first, last in windows])
    shown = {
        "online model": (MODEL_COLOR, "o-"),
        "recursive least squares of the best order": (LINE_COLOR, "s--"),
        "limit": (LIMIT_COLOR, ":"),
    }
    figure, ax = new_figure()
    for number, (label, (color, marks)) in enumerate(shown.items()):
        ratios = np.empty((len(runs), len(windows)))
        rmse = []
        for i, (day, errors) in enumerate(runs):
            rmse.append(1000.0 * np.sqrt(np.mean(errors[number] ** 2)))
            for j, (first, last) in enumerate(windows):
                is_inside = (first <= day) & (day < last)
                squares = np.mean(errors[:, is_inside] ** 2, axis=1)
                ratios[i, j] = np.sqrt(squares[number] / squares[-1])
        print(f"online: {label}: {np.round(rmse, 2)} mK over the year, by seed")
        print(f"online: times the limit, by window {np.round(np.median(ratios, axis=0), 3)}")
        ax.fill_between(
            centres, ratios.min(axis=0), ratios.max(axis=0), color=color, alpha=0.2, linewidth=0
        )
        ax.plot(
            centres,
            np.median(ratios, axis=0),
            marks,
            color=color,
            markersize=4,
            label=f"{label}: {np.median(rmse):.1f} mK",
        )
    ax.set(xlabel="days since the start", ylabel="RMSE one step ahead,\ntimes the limit")
    ax.set_xscale("log")
    ax.set_xticks(WINDOW_EDGES, [f"{edge:g}" for edge in WINDOW_EDGES])
    ax.minorticks_off()
    put_legend_above(ax)
    return figure


def predict_year(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate a year of the building, and predict each sample before it is learned.

    Returns
    -------
    tuple
        Days since the start (n,), and errors (3, n) of the online model, of recursive least squares
        and of the limit [K].
    """
    system = Building()
    controller = PI()
    time = system.dt * np.arange(N_YEAR)
    weather = SyntheticWeather().temperature(time, seed=seed)
    samples = closed_loop(system, controller, {"ambient_temperature": weather}, seed=seed)
    trajectory = collect(samples, system, seed=seed)
    narx = Narx(
        outputs={"zone_temperature": 3},
        inputs={"ambient_temperature": 3, "mass_flow": 3},
        predict="change",
    )
    settings = Settings(insertion=ErrorThreshold(0.1), seed=seed)
    narx = settings.with_linear_lags(narx)
    rows = narx.dataset(trajectory.to_dataset())
    target = rows["target"].values
    record = Identification(narx, settings).observe_many(rows["regressor"].values, target)
    is_predicted = np.isfinite(record["mean"])  # all but the initial samples
    target = target[is_predicted]
    sample = np.rint(rows["time"].values / system.dt).astype(int)[is_predicted]
    limit = predict_one_step(trajectory, 0.0, driven=controller.inputs_driven).mean[sample, 0]
    predicted = [
        record["mean"][is_predicted],
        predict_recursively(trajectory, target),
        limit - rows["previous"].values[is_predicted],
    ]
    return sample * system.dt / 86400.0, target - np.array(predicted)


def predict_recursively(trajectory: Trajectory, target: np.ndarray) -> np.ndarray:
    """Return the predictions of recursive least squares of the order that is best in hindsight."""
    lags = {"outputs": {"zone_temperature": N_RECURSIVE_LAGS}}
    lags["inputs"] = dict.fromkeys(("ambient_temperature", "mass_flow"), N_RECURSIVE_LAGS)
    narx = Narx(**lags, predict="change")
    rows = narx.dataset(trajectory.to_dataset())
    x = rows["regressor"].values
    # by lag: all signals with lag 1, then all with lag 2
    order = np.argsort([lag for _, lag in narx.features], kind="stable")
    x = (x - x[:100].mean(axis=0)) / x[:100].std(axis=0)
    features = np.column_stack([np.ones(len(x)), x[:, order]])
    sizes = [1 + 3 * n for n in range(1, N_RECURSIVE_LAGS + 1)]
    predicted = recursive_least_squares(features, rows["target"].values, sizes)
    first = len(predicted) - len(target)
    errors = np.mean((target[:, None] - predicted[first:]) ** 2, axis=0)
    best = int(np.argmin(errors))
    print(f"online: recursive least squares of {best + 1} lags")
    return predicted[first:, best]


def draw_sweep() -> Figure:
    """Draw the error of models of the Van der Pol oscillator against the noise of its sensor.

    Lines are medians over the seeds, bands the range of the default.
    """
    folder = COMPUTED / "noise"
    run(
        "identify",
        "-m",
        "system=van_der_pol",
        "duration=4000samples",
        f"noise.snr_db={','.join(map(str, SWEPT_NOISE))}",
        "linear_part=auto,none",
        f"seed=range(0,{N_SWEPT_SEEDS})",
        "figures=false",
        f"hydra.sweep.dir={folder}",
    )
    run("collect", str(folder), "figures=false")
    with xr.open_dataset(folder / "sweep.nc") as opened:
        results = opened.load()
    default = results.sel(linear_part="auto")
    curves = {
        "best ARX": (default["smse_linear"], LINE_COLOR, "s--"),
        "Gaussian process alone": (results["smse"].sel(linear_part="none"), ALONE_COLOR, "v-"),
        "default": (default["smse"], MODEL_COLOR, "o-"),
        "limit": (default["smse_limit"], LIMIT_COLOR, "^:"),
    }
    figure, ax = new_figure()
    for label, (errors, color, marks) in curves.items():
        median = errors.median("seed")
        print(f"sweep: {label}: {median.values}")
        ax.plot(results["snr_db"], median, marks, color=color, markersize=4, label=label)
    ax.fill_between(
        results["snr_db"],
        default["smse"].min("seed"),
        default["smse"].max("seed"),
        color=MODEL_COLOR,
        alpha=0.25,
        linewidth=0,
    )
    ax.set(xlabel="signal-to-noise ratio of the sensor [dB]", ylabel="SMSE one step ahead")
    ax.set_yscale("log")
    ax.set_xticks(SWEPT_NOISE)
    put_legend_above(ax)
    return figure


def run(command: str, *arguments: str) -> None:
    """Run a command of the toolbox; what it prints is shown."""
    subprocess.run([sys.executable, "-m", f"experiments.{command}", *arguments], check=True)


def new_figure() -> tuple[Figure, Axes]:
    """Return a new figure and its axes."""
    figure = Figure(figsize=FIGURE_SIZE, layout="constrained")
    return figure, figure.subplots()


def put_legend_above(ax: Axes) -> None:
    """Put the legend above the axes, where it hides nothing."""
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, fontsize="small")


#: figures by their name
FIGURES: dict[str, Callable[[], Figure]] = {
    "free_run": draw_free_run,
    "online": draw_online,
    "sweep": draw_sweep,
}


def main(names: list[str]) -> None:
    """Draw the figures of these names; without a name all of them."""
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise SystemExit(f"docs/figures.py: expected names among {list(FIGURES)}, got {unknown}")
    for name in names or FIGURES:
        with rc_context(STYLE):
            figure = FIGURES[name]()
            path = IMAGES / f"front_{name}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None})
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
