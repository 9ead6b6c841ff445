"""The ten tasks of the paper and further streams: rows to learn from, in their order, and rows to
judge by.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr

import simulators
import sysid
from experiments.plant.plant import Plant
from sysid.store import digest

N_TRAINING = 600  # rows of a static function: 100 initial and 500 new ones
N_AXIS = 41  # places of its validation grid along each input

VAN_DER_POL_NARX = sysid.Narx({"position": 2}, predict=sysid.Target.change)
# short trajectories from random initial states, 50 rows each
N_TRAJECTORIES = 20
N_SAMPLES = 52

BOUC_WEN_NARX = sysid.Narx({"displacement": 3}, {"force": 3}, predict=sysid.Target.change)
FORCE = simulators.Multisine(rms=50.0, band=(5.0, 150.0))  # N, Hz: the official recipe
# samples of the multisine; of the record after one period of transient
PERIOD = 8192
N_KEPT = 1000
OUTPUT_NOISE = 8e-6  # m

BUILDING_NARX = sysid.Narx(
    {"zone_temperature": 3},
    {"ambient_temperature": 3, "mass_flow": 3},
    predict=sysid.Target.change,
)
YEAR = 35041  # samples of 15 min
BUILDING = simulators.Building()
NOISELESS = simulators.MeasurementNoise()

TANKS_NARX = sysid.Narx({"level": 2}, {"pump_voltage": 2}, predict=sysid.Target.change)
SILVERBOX_NARX = sysid.Narx({"output_voltage": 3}, {"input_voltage": [0, 1, 2, 3]})
# samples of a simulated stream of the tanks, and of one level of the pump
N_LEVELS = 4000
HOLD = 25
LEVEL_NOISE = 0.004  # V/s, of both levels: 16 mV over a sample
# sample at which the outlet clogs, samples that it takes, part that is left
CLOGGING = 1500
RAMP = 1500
CLOGGED = 0.6
FAULTS = simulators.OutlierNoise(share=0.02, size=0.4)  # V: 25 times the noise of a sample
BUILDING_CHANGE = 8760  # sample, in the middle of the part that trains


class Rows(NamedTuple):
    """Features and targets in their own units."""

    inputs: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)


class TaskData(NamedTuple):
    """Rows with inputs standardised and targets centred by the whole training part, as the paper
    does.
    """

    initial_inputs: np.ndarray  # (n_initial, p), the first rows of the training part
    initial_targets: np.ndarray  # (n_initial,) target unit
    inputs: np.ndarray  # (n, p), the stream
    targets: np.ndarray  # (n,)
    test_inputs: np.ndarray  # (m, p)
    test_targets: np.ndarray  # (m,)

    @classmethod
    def of(cls, training: Rows, test: Rows, n_initial: int) -> Self:
        """Standardise by the training part: ``(x - mean) / std``, ``y - mean``; a constant column
        has scale 1.
        """
        scaling = sysid.Scaling.fit(training.inputs)
        offset = training.targets.mean()
        x = scaling.transform(training.inputs)
        y = training.targets - offset
        first = slice(n_initial)
        stream = slice(n_initial, None)
        return cls(
            x[first],
            y[first],
            x[stream],
            y[stream],
            scaling.transform(test.inputs),
            test.targets - offset,
        )

    @property
    def training_inputs(self) -> np.ndarray:
        """Initial rows and stream (n_initial + n, p)."""
        return np.vstack([self.initial_inputs, self.inputs])

    @property
    def training_targets(self) -> np.ndarray:
        """Initial rows and stream (n_initial + n,)."""
        return np.concatenate([self.initial_targets, self.targets])


@dataclass(frozen=True)
class Task:
    """One task; `title` is how the paper calls it."""

    title: str
    unit: str  # of the target
    draw: Callable[[int], tuple[Rows, Rows]]  # seed -> training rows in their order, and test rows
    narx: sysid.Narx | None = None  # of the rows; None: they have no order
    source: sysid.DataSource | None = None  # of the measured records that it reads
    is_random: bool = True  # whether another seed gives other rows

    def seeds(self, n: int) -> tuple[int, ...]:
        """Seeds that give other rows: the first n, or 0 alone if nothing is random."""
        return tuple(range(n)) if self.is_random else (0,)

    def digest(self) -> str:
        """Digest of the measured records; empty without.

        Raises
        ------
        sysid.DataError
            Data that is not there; it says which folder or command provides it.
        """
        return (
            "-".join(digest(record)[:8] for record in self.source.load().records)
            if self.source
            else ""
        )


def sample_function(function: simulators.StaticFunction, seed: int) -> tuple[Rows, Rows]:
    """Draw uniform samples of a static function without noise, and a grid over the same domain."""
    box = (function.lower, function.upper)
    training = simulators.Uniform().sample(N_TRAINING, *box, seed=seed)
    grid = simulators.Grid().sample(N_AXIS**2, *box)
    return Rows(training, function(training)), Rows(grid, function(grid))


def recorded(
    title: str, unit: str, source: sysid.DataSource, narx: sysid.Narx | None = None
) -> Task:
    """Task of a measured record, or of a table without time: its estimation part trains, the first
    test judges.
    """

    def draw(seed: int) -> tuple[Rows, Rows]:
        recordings = source.load()
        features = {
            name: [0] for name in recordings.inputs
        }  # of a table, whose rows stay in file order
        own = narx or sysid.Narx({recordings.outputs[0]: []}, features, predict=sysid.Target.value)
        return make_rows(own, recordings.estimation), make_rows(own, recordings.test[:1])

    return Task(title, unit, draw, narx, source, is_random=False)


def simulate_bouc_wen(seed: int) -> tuple[Rows, Rows]:
    """Simulate an estimation record of the official recipe; the official multisine test judges."""
    system = simulators.BoucWen()
    force = FORCE.signal(PERIOD, system.dt, simulators.random_stream(seed, "excitation"))
    limited = simulators.Interpolation.band_limited
    noise = simulators.MeasurementNoise(std=OUTPUT_NOISE)
    many = simulators.simulate(
        system, [*force, *force], interpolation=limited, measurement=noise, seed=seed
    )
    record = many.to_dataset()
    recordings = sysid.BoucWenData().load()
    test = recordings.test[0].rename(
        {recordings.inputs[0]: "force", recordings.outputs[0]: "displacement"}
    )
    training = record.isel(time=slice(PERIOD, PERIOD + N_KEPT))
    return make_rows(BOUC_WEN_NARX, [training]), make_rows(BOUC_WEN_NARX, [test])


def simulate_van_der_pol(seed: int) -> tuple[Rows, Rows]:
    """Simulate two independent ensembles of short trajectories, initial states uniform in [-2,
    2]^2.
    """

    def rows(purpose: int) -> Rows:
        states = np.random.default_rng([seed, purpose]).uniform(-2.0, 2.0, size=(N_TRAJECTORIES, 2))
        options: dict[str, Any] = {"initial_states": states, "seed": 2 * seed + purpose}
        ensemble = simulators.simulate_many(
            simulators.VanDerPol(), n_samples=N_SAMPLES, **options
        ).to_dataset()
        return make_rows(
            VAN_DER_POL_NARX,
            [ensemble.isel(trajectory=i) for i in range(N_TRAJECTORIES)],
        )

    return rows(0), rows(1)


def simulate_building(
    seed: int, n_samples: int = YEAR, system: simulators.System = BUILDING
) -> tuple[Rows, Rows]:
    """Simulate the heated building in closed loop: the first half trains, the second, with its
    lags, validates.
    """
    weather = {"ambient_temperature": simulators.SyntheticWeather()}
    plant = Plant(system, simulators.PI(), weather, {}, NOISELESS, simulators.Interpolation.held)
    record = plant.trajectory(n_samples, seed).to_dataset()
    half = (n_samples - 1) // 2 + 1
    training = slice(half)
    test = slice(half - BUILDING_NARX.max_lag, None)
    return make_rows(BUILDING_NARX, [record.isel(time=training)]), make_rows(
        BUILDING_NARX, [record.isel(time=test)]
    )


def simulate_tanks(
    seed: int,
    *,
    changes: Sequence[simulators.Change] = (),
    noise: simulators.MeasurementNoise = NOISELESS,
) -> tuple[Rows, Rows]:
    """Simulate the tanks at random levels of the pump, as they change; the plant as it is at the
    end judges.
    """
    noisy: dict[str, Any] = {
        "upper_noise_std": LEVEL_NOISE,
        "lower_noise_std": LEVEL_NOISE,
    }
    final: dict[str, Any] = {change.parameter: change.to for change in changes}
    plants = (
        simulators.CascadedTanks(changes=changes, **noisy),
        simulators.CascadedTanks(**noisy, **final),
    )

    def rows(purpose: int, noise: simulators.MeasurementNoise) -> Rows:
        levels = np.random.default_rng([seed, purpose]).uniform(1.2, 2.4, N_LEVELS // HOLD)
        options: dict[str, Any] = {
            "seed": 2 * seed + purpose,
            "initial_state": [2.0, 2.0],
            "measurement": noise,
        }
        record = simulators.simulate(plants[purpose], levels.repeat(HOLD), **options).to_dataset()
        return make_rows(TANKS_NARX, [record])

    return rows(0, noise), rows(1, NOISELESS)


def simulate_tanks_loop(seed: int) -> tuple[Rows, Rows]:
    """Simulate the tanks under a PI controller that follows random levels: one run trains, another
    one judges.
    """
    system = simulators.CascadedTanks(upper_noise_std=LEVEL_NOISE, lower_noise_std=LEVEL_NOISE)
    gains: dict[str, Any] = {
        "proportional_gain": 0.3,
        "integral_gain": 0.001,
        "minimum": 0.0,
        "maximum": 10.0,
    }

    def rows(purpose: int) -> Rows:
        levels = np.random.default_rng([seed, purpose]).uniform(2.0, 8.0, N_LEVELS // 100)
        schedule = simulators.Levels(levels=levels.tolist(), hold=100 * system.dt)
        signals: dict[str, Any] = {
            "output": "level",
            "input": "pump_voltage",
            "schedule": schedule,
        }
        controller = simulators.PI(dt=system.dt, **signals, **gains)
        samples = simulators.closed_loop(
            system, controller, {}, n_samples=N_LEVELS, seed=2 * seed + purpose
        )
        return make_rows(
            TANKS_NARX,
            [simulators.collect(samples, system, seed=2 * seed + purpose).to_dataset()],
        )

    return rows(0), rows(1)


def simulate_changed_building(seed: int) -> tuple[Rows, Rows]:
    """Simulate the building as its radiator and its wall change; another year of the changed one
    judges.
    """
    names: dict[str, Any] = {
        "radiator_resistance": 0.004,
        "zone_resistance": 0.004,
    }  # K/W, both twice as large
    start = BUILDING_CHANGE * BUILDING.dt
    changed = simulators.Building(
        changes=[simulators.Change(name, to, start) for name, to in names.items()]
    )
    training, _ = simulate_building(seed, YEAR, changed)
    return training, simulate_building(seed + 1000, YEAR, simulators.Building(**names))[1]


def make_rows(narx: sysid.Narx, records: Sequence[xr.Dataset]) -> Rows:
    """Make rows of the lags of records; lags never reach from one record into another."""
    dataset = narx.dataset(records)
    return Rows(dataset["regressor"].values, dataset["target"].values)


#: static functions by the name of their task
FUNCTIONS: dict[str, simulators.StaticFunction] = {
    "rastrigin": simulators.Rastrigin(),
    "rosenbrock": simulators.Rosenbrock(),
    "himmelblau": simulators.Himmelblau(),
    # the textbook function; the paper misprints its last term
    "six_hump_camel": simulators.SixHumpCamel(),
}
#: the tasks of the paper by their name in the configuration, in the order of its tables, about that of their size
PAPER_TASKS: dict[str, Task] = {
    **{
        name: Task(name.replace("_", " ").title(), "1", partial(sample_function, f))
        for name, f in FUNCTIONS.items()
    },
    "boston": recorded("Boston", "1000 USD", sysid.BostonData()),
    "concrete": recorded("Concrete", "MPa", sysid.ConcreteData()),
    "bouc_wen": Task("Bouc-Wen", "m", simulate_bouc_wen, BOUC_WEN_NARX, sysid.BoucWenData()),
    "tanks": recorded("Tanks", "V", sysid.CascadedTanksData(), TANKS_NARX),
    "van_der_pol": Task("Van der Pol", "m", simulate_van_der_pol, VAN_DER_POL_NARX),
    "building": Task("Building", "K", simulate_building, BUILDING_NARX),
}
TANKS = simulators.CascadedTanks()
SUDDEN = simulators.Change("lower_outflow", CLOGGED * TANKS.lower_outflow, CLOGGING * TANKS.dt)
SLOW = replace(SUDDEN, end=SUDDEN.start + RAMP * TANKS.dt)
#: streams that the paper does not have, for the comparison of online methods
STREAMS: dict[str, Task] = {
    "silverbox": recorded("Silverbox", "V", sysid.SilverboxData(), SILVERBOX_NARX),
    "tanks_loop": Task("Tanks in closed loop", "V", simulate_tanks_loop, TANKS_NARX),
    "steady": Task("Tanks, nothing changes", "V", simulate_tanks, TANKS_NARX),
    "clogging": Task(
        "Tanks, outlet clogs slowly",
        "V",
        partial(simulate_tanks, changes=[SLOW]),
        TANKS_NARX,
    ),
    "clogged": Task(
        "Tanks, outlet clogs at once",
        "V",
        partial(simulate_tanks, changes=[SUDDEN]),
        TANKS_NARX,
    ),
    "failing_sensor": Task(
        "Tanks, sensor with outliers",
        "V",
        partial(simulate_tanks, noise=FAULTS),
        TANKS_NARX,
    ),
    "changed_building": Task(
        "Building, radiator and wall change",
        "K",
        simulate_changed_building,
        BUILDING_NARX,
    ),
}
#: all tasks by their name in the configuration
TASKS = PAPER_TASKS | STREAMS


def draw_rows(task: str, seed: int, building_samples: int = YEAR) -> tuple[Rows, Rows]:
    """Draw training and test rows of a task; the Building may be shorter than a year."""
    return (
        simulate_building(seed, building_samples) if task == "building" else TASKS[task].draw(seed)
    )


def load_task(
    task: str,
    seed: int,
    *,
    n_initial: int,
    most_rows: int,
    building_samples: int = YEAR,
) -> TaskData:
    """Draw and standardise rows; of a longer stream the first `most_rows`, of more test rows some
    that are spread.
    """
    training, test = draw_rows(task, seed, building_samples)
    first = slice(n_initial + most_rows)
    spread = slice(None, None, -(-len(test.targets) // most_rows))
    training = Rows(training.inputs[first], training.targets[first])
    return TaskData.of(training, Rows(test.inputs[spread], test.targets[spread]), n_initial)
