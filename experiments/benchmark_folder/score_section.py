"""The section of the data card on scores: the table, and what its rows mean."""

from typing import Any

from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.description import summary
from experiments.benchmark_folder.lags import Lags
from experiments.benchmark_folder.markdown import number, table

TASKS = ("one_step", "free_run")


def score_section(benchmark: Benchmark) -> str:
    """Scores of floor and baselines on the test records."""
    parts = (
        "## Scores on the test records",
        *(_scores_of(benchmark, signal.name, signal.unit) for signal in benchmark.system.outputs),
        "\n".join(f"- {remark}." for remark in benchmark.remarks),
        _definitions(benchmark),
        _lags(benchmark.lags),
    )
    return "\n\n".join(part for part in parts if part)


def _scores_of(benchmark: Benchmark, output: str, unit: str) -> str:
    rows = []
    for model in benchmark.scores["one_step"]:
        found = [benchmark.scores[task][model].get(output) for task in TASKS]
        rows.append((benchmark.label(model), *(_shown(value) for value in found)))
    return table((f"RMSE of `{output}` [{unit}]", "one step ahead", "free run"), rows)


def _shown(value: dict[str, Any] | None) -> str:
    if value is None:
        return "-"
    return "diverges" if value["rmse"] is None else number(value["rmse"], 4)


def _definitions(benchmark: Benchmark) -> str:
    noisy = bool(benchmark.system.noise_std().any())
    lines = [
        "RMSE against the measured output, over all test records without their initialisation windows.\n",
        "- *measurement noise*: the noise-free output itself is predicted.",
        _with_noise(benchmark) if noisy else WITHOUT_NOISE,
        *(f"- *{benchmark.label(name)}*: {summary(model)}" for name, model in benchmark.baselines.items()),
    ]
    if not benchmark.plant.is_open_loop:
        lines.append(CLOSED_LOOP)
    return "\n".join(lines)


WITHOUT_NOISE = """\
- *noise floor*: simulated with the true system, from the true state and with the recorded input: one step ahead from
  the state at sample k-1, in free run from that at the last sample of the initialisation window. What is left is the
  measurement noise; no model can be expected to do better."""
WITH_NOISE = """\
- *noise floor*: the best prediction from the true state, given the recorded input: the mean of the output over the
  process noise that is still to come. One step ahead it is given the state at sample k-1 (mean by a cubature rule of
  degree five), in free run that at the last sample of the initialisation window (mean of {paths} simulated noise
  paths). No model can be expected to do better; on a finite record one may, by chance. The measurement noise is
  included."""
CLOSED_LOOP = """
**Closed loop:** the controller computes the recorded input from the measured output, so that the input tells what
the noise did. A model that inverts the controller can beat the noise floor of the free run, and every other floor
that takes the input as given; the floor one step ahead stands for models that use inputs up to sample k-1 only."""


def _with_noise(benchmark: Benchmark) -> str:
    lines = [WITH_NOISE.format(paths=benchmark.noise_paths)]
    for signal in benchmark.system.outputs:
        floor = benchmark.scores["free_run"]["noise_floor"][signal.name]
        if floor["rmse"] is None:
            continue
        expected, error = (number(floor[key], 4) for key in ("expected_rmse", "standard_error"))
        lines.append(
            f"  Free run of `{signal.name}`: its expected RMSE is {expected} {signal.unit}, over all noise; on these "
            f"records it reaches {number(floor['rmse'], 4)} {signal.unit}. The finite number of paths leaves the mean "
            f"uncertain by {error} {signal.unit} (rms standard error)."
        )
    return "\n".join(lines)


def _lags(lags: Lags) -> str:
    def named(names: tuple[str, ...]) -> str:
        return ", ".join(f"`{name}`" for name in names)

    first, *others = lags.by_output.values()
    lines = [f"Lags of the models of `{first.target}` and of `narx.nc`: {named(first.feature_names)}."]
    lines += [f"Lags of the models of `{narx.target}`: {named(narx.feature_names)}." for narx in others]
    return "\n".join(lines)
