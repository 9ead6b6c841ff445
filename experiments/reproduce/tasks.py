"""The ten tasks of the paper, further streams, and records of the literature.

Tasks of rows have training rows in their order, and test rows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr

import simulators
import sysid
from experiments.plant.plant import Plant
from experiments.reproduce.excited_plants import EXCITED_PLANTS
from experiments.reproduce.small_records import SMALL_RECORDS
from sysid.store import digest

N_FUNCTION_ROWS = 600  # rows of a static function: 100 initial and 500 new ones
N_AXIS = 41  # points of the validation grid of a static function along each input

VAN_DER_POL_NARX = sysid.Narx({"position": 2}, predict=sysid.Target.change)
N_TRAJECTORIES = 20  # short trajectories from random initial states
N_TRAJECTORY_SAMPLES = 52  # samples of each trajectory, which make 50 rows

BOUC_WEN_NARX = sysid.Narx({"displacement": 3}, {"force": 3}, predict=sysid.Target.change)
OFFICIAL_FORCE = simulators.Multisine(rms=50.0, band=(5.0, 150.0))  # N, Hz: the official recipe
MULTISINE_PERIOD = 8192  # samples in a period of the force
N_BOUC_WEN_SAMPLES = 1000  # samples of the record, after one period of transient
BOUC_WEN_NOISE_STD = 8e-6  # m, standard deviation of the measurement noise

BUILDING_NARX = sysid.Narx(
    {"zone_temperature": 3},
    {"ambient_temperature": 3, "mass_flow": 3},
    predict=sysid.Target.change,
)
YEAR_SAMPLES = 35041  # samples of 15 min in a year
NOMINAL_BUILDING = simulators.Building()
EXACT_MEASUREMENT = simulators.MeasurementNoise()  # no noise

TANKS_NARX = sysid.Narx({"level": 2}, {"pump_voltage": 2}, predict=sysid.Target.change)
SILVERBOX_NARX = sysid.Narx({"output_voltage": 3}, {"input_voltage": [0, 1, 2, 3]})
N_TANK_SAMPLES = 4000  # samples of a simulated stream of the tanks
PUMP_HOLD_SAMPLES = 25  # samples for which the pump stays at a level
SETPOINT_HOLD_SAMPLES = 100  # samples for which the controller follows a level
LEVEL_NOISE_STD = 0.004  # noise on the rate of both levels [V/s]: 16 mV over a sample
CLOGGING_START_SAMPLE = 1500  # sample at which the outlet begins to clog
CLOGGING_SAMPLES = 1500  # samples until a slow clogging ends
CLOGGED_FRACTION = 0.6  # fraction of the outflow that is left
FAULTY_SENSOR = simulators.OutlierNoise(share=0.02, size=0.4)  # V: 25 times a sample's noise
BUILDING_CHANGE_START = 8760  # sample, in the middle of the training part


class Rows(NamedTuple):
    """Features and targets in their own units."""

    inputs: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)


class TaskData(NamedTuple):
    """Rows whose inputs are standardised and whose targets are centred.

    As in the paper, the scaling is that of the whole training part.
    """

    initial_inputs: np.ndarray  # (n_initial, p), the first rows of the training part
    initial_targets: np.ndarray  # (n_initial,) target unit
    inputs: np.ndarray  # (n, p), the stream
    targets: np.ndarray  # (n,)
    test_inputs: np.ndarray  # (m, p)
    test_targets: np.ndarray  # (m,)

    @classmethod
    def of(cls, training: Rows, test: Rows, n_initial: int) -> Self:
        """Standardise by the training part: ``(x - mean) / std``, ``y - mean``.

        A constant column has scale 1.
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
        """Inputs of the initial rows and the stream (n_initial + n, p)."""
        return np.vstack([self.initial_inputs, self.inputs])

    @property
    def training_targets(self) -> np.ndarray:
        """Targets of the initial rows and the stream (n_initial + n,)."""
        return np.concatenate([self.initial_targets, self.targets])


class Records(NamedTuple):
    """Records whose samples a model learns in their order, and records that test it."""

    training: Sequence[xr.Dataset]
    test: Sequence[xr.Dataset]

    def rows(self, narx: sysid.Narx) -> tuple[Rows, Rows]:
        """Return the rows of these lags, of the training records and of the test records."""
        return make_rows(narx, self.training), make_rows(narx, self.test)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data of a study; `title` is their name in tables."""

    title: str
    unit: str  # of the target
    source: sysid.DataSource | None = None  # of the measured records that it reads
    is_random: bool = True  # whether another seed gives other rows

    def seeds(self, n: int) -> tuple[int, ...]:
        """Return the seeds that give different rows: the first n, or 0 alone if none is random."""
        return tuple(range(n)) if self.is_random else (0,)

    def digest(self) -> str:
        """Return the digests of the measured records; empty if there are none.

        Raises
        ------
        sysid.DataError
            The data are missing; the message states which folder or command provides them.
        """
        if self.source is None:
            return ""
        return "-".join(digest(record)[:8] for record in self.source.load().records)


@dataclass(frozen=True, kw_only=True)
class RowTask(Task, ABC):
    """Rows to learn, and rows to test the model."""

    @abstractmethod
    def draw(self, seed: int) -> tuple[Rows, Rows]:
        """Return the training rows, in the order in which they are learned, and the test rows."""


@dataclass(frozen=True, kw_only=True)
class Table(RowTask):
    """A task whose rows have no order in time."""

    rows: Callable[[int], tuple[Rows, Rows]]  # of a seed: training rows and test rows

    def draw(self, seed: int) -> tuple[Rows, Rows]:
        """Return the training rows and the test rows."""
        return self.rows(seed)


@dataclass(frozen=True, kw_only=True)
class Stream(RowTask):
    """A task whose rows are those of the lags of records."""

    records: Callable[[int], Records]  # of a seed
    narx: sysid.Narx

    def draw(self, seed: int) -> tuple[Rows, Rows]:
        """Return the rows of the training records in the order of time, and the test rows."""
        return self.records(seed).rows(self.narx)


def sample_function(function: simulators.StaticFunction, seed: int) -> tuple[Rows, Rows]:
    """Draw uniform samples of a static function without noise, and a grid over the same domain."""
    box = (function.lower, function.upper)
    training = simulators.Uniform().sample(N_FUNCTION_ROWS, *box, seed=seed)
    grid = simulators.Grid().sample(N_AXIS**2, *box)
    return Rows(training, function(training)), Rows(grid, function(grid))


def measured_table(title: str, unit: str, source: sysid.DataSource) -> Table:
    """Return the task of a measured table without time, whose rows stay in file order."""

    def rows(seed: int) -> tuple[Rows, Rows]:
        recordings = source.load()
        features = {name: [0] for name in recordings.inputs}
        output = recordings.outputs[0]
        narx = sysid.Narx({output: []}, features, predict=sysid.Target.value)
        return Records(recordings.estimation, recordings.test[:1]).rows(narx)

    return Table(title=title, unit=unit, rows=rows, source=source, is_random=False)


def measured_stream(title: str, unit: str, source: sysid.DataSource, narx: sysid.Narx) -> Stream:
    """Return the task of measured records.

    The estimation part is learned, and the first test record tests the model.
    """

    def records(seed: int) -> Records:
        recordings = source.load()
        return Records(recordings.estimation, recordings.test[:1])

    return Stream(
        title=title, unit=unit, records=records, narx=narx, source=source, is_random=False
    )


def simulate_bouc_wen(seed: int) -> Records:
    """Simulate an estimation record of the official recipe.

    The test record is the official multisine test.
    """
    system = simulators.BoucWen()
    rng = simulators.random_stream(seed, "excitation")
    force = OFFICIAL_FORCE.signal(MULTISINE_PERIOD, system.dt, rng)
    two_periods = simulators.simulate(
        system,
        [*force, *force],
        interpolation=simulators.Interpolation.band_limited,
        measurement=simulators.MeasurementNoise(std=BOUC_WEN_NOISE_STD),
        seed=seed,
    )
    after_transient = slice(MULTISINE_PERIOD, MULTISINE_PERIOD + N_BOUC_WEN_SAMPLES)
    training = two_periods.to_dataset().isel(time=after_transient)
    recordings = sysid.BoucWenData().load()
    names = {recordings.inputs[0]: "force", recordings.outputs[0]: "displacement"}
    test = recordings.test[0].rename(names)
    return Records([training], [test])


def simulate_van_der_pol(seed: int) -> Records:
    """Simulate two independent ensembles of short trajectories.

    The initial states are uniform in [-2, 2]^2.
    """

    def trajectories(purpose: int) -> list[xr.Dataset]:
        states = np.random.default_rng([seed, purpose]).uniform(-2.0, 2.0, size=(N_TRAJECTORIES, 2))
        ensemble = simulators.simulate_many(
            simulators.VanDerPol(),
            n_samples=N_TRAJECTORY_SAMPLES,
            initial_states=states,
            seed=2 * seed + purpose,
        ).to_dataset()
        return [ensemble.isel(trajectory=i) for i in range(N_TRAJECTORIES)]

    return Records(trajectories(0), trajectories(1))


def simulate_building(
    seed: int, n_samples: int = YEAR_SAMPLES, system: simulators.System = NOMINAL_BUILDING
) -> Records:
    """Simulate the heated building in closed loop.

    The first half of the samples is learned. The second half, with its lags, tests the model.
    """
    plant = Plant(
        system,
        simulators.PI(),
        {"ambient_temperature": simulators.SyntheticWeather()},
        {},
        EXACT_MEASUREMENT,
        simulators.Interpolation.held,
    )
    record = plant.trajectory(n_samples, seed).to_dataset()
    half = (n_samples - 1) // 2 + 1
    training = record.isel(time=slice(half))
    test = record.isel(time=slice(half - BUILDING_NARX.max_lag, None))
    return Records([training], [test])


def simulate_tanks(
    seed: int,
    *,
    changes: Sequence[simulators.Change] = (),
    noise: simulators.MeasurementNoise = EXACT_MEASUREMENT,
) -> Records:
    """Simulate the tanks at random levels of the pump, while their parameters change.

    The test record is of the plant as it is at the end.
    """
    process_noise: dict[str, Any] = {
        "upper_noise_std": LEVEL_NOISE_STD,
        "lower_noise_std": LEVEL_NOISE_STD,
    }
    final: dict[str, Any] = {change.parameter: change.to for change in changes}
    plants = (
        simulators.CascadedTanks(changes=changes, **process_noise),
        simulators.CascadedTanks(**process_noise, **final),
    )

    def record(purpose: int, noise: simulators.MeasurementNoise) -> xr.Dataset:
        n_levels = N_TANK_SAMPLES // PUMP_HOLD_SAMPLES
        levels = np.random.default_rng([seed, purpose]).uniform(1.2, 2.4, n_levels)
        trajectory = simulators.simulate(
            plants[purpose],
            levels.repeat(PUMP_HOLD_SAMPLES),
            seed=2 * seed + purpose,
            initial_state=[2.0, 2.0],
            measurement=noise,
        )
        return trajectory.to_dataset()

    return Records([record(0, noise)], [record(1, EXACT_MEASUREMENT)])


def simulate_tanks_loop(seed: int) -> Records:
    """Simulate the tanks under a PI controller that follows random levels.

    One run is learned, another one tests the model.
    """
    system = simulators.CascadedTanks(
        upper_noise_std=LEVEL_NOISE_STD, lower_noise_std=LEVEL_NOISE_STD
    )

    def record(purpose: int) -> xr.Dataset:
        n_levels = N_TANK_SAMPLES // SETPOINT_HOLD_SAMPLES
        levels = np.random.default_rng([seed, purpose]).uniform(2.0, 8.0, n_levels)
        controller = simulators.PI(
            dt=system.dt,
            output="level",
            input="pump_voltage",
            schedule=simulators.Levels(
                levels=levels.tolist(), hold=SETPOINT_HOLD_SAMPLES * system.dt
            ),
            proportional_gain=0.3,
            integral_gain=0.001,
            minimum=0.0,
            maximum=10.0,
        )
        samples = simulators.closed_loop(
            system, controller, {}, n_samples=N_TANK_SAMPLES, seed=2 * seed + purpose
        )
        return simulators.collect(samples, system, seed=2 * seed + purpose).to_dataset()

    return Records([record(0)], [record(1)])


def simulate_changed_building(seed: int) -> Records:
    """Simulate the building while the resistances of its radiator and its wall change.

    The test record is of another year of the changed building.
    """
    resistances: dict[str, Any] = {  # K/W, both twice as large as before
        "radiator_resistance": 0.004,
        "zone_resistance": 0.004,
    }
    start = BUILDING_CHANGE_START * NOMINAL_BUILDING.dt
    changes = [simulators.Change(name, to, start) for name, to in resistances.items()]
    changing = simulators.Building(changes=changes)
    changed = simulators.Building(**resistances)
    training = simulate_building(seed, YEAR_SAMPLES, changing).training
    test = simulate_building(seed + 1000, YEAR_SAMPLES, changed).test
    return Records(training, test)


def make_rows(narx: sysid.Narx, records: Sequence[xr.Dataset]) -> Rows:
    """Return the rows of the lags of records; no lag reaches from one record into another."""
    dataset = narx.dataset(records)
    return Rows(dataset["regressor"].values, dataset["target"].values)


#: Static functions by the name of their task.
STATIC_FUNCTIONS: dict[str, simulators.StaticFunction] = {
    "rastrigin": simulators.Rastrigin(),
    "rosenbrock": simulators.Rosenbrock(),
    "himmelblau": simulators.Himmelblau(),
    # The function of textbooks; the paper misprints its last term.
    "six_hump_camel": simulators.SixHumpCamel(),
}
#: The tasks of the paper by their name in the configuration, in the order of its tables. Later
#: ones are mostly larger.
PAPER_TASKS: dict[str, RowTask] = {
    **{
        name: Table(
            title=name.replace("_", " ").title(),
            unit="1",
            rows=partial(sample_function, function),
        )
        for name, function in STATIC_FUNCTIONS.items()
    },
    "boston": measured_table("Boston", "1000 USD", sysid.BostonData()),
    "concrete": measured_table("Concrete", "MPa", sysid.ConcreteData()),
    "bouc_wen": Stream(
        title="Bouc-Wen",
        unit="m",
        records=simulate_bouc_wen,
        narx=BOUC_WEN_NARX,
        source=sysid.BoucWenData(),
    ),
    "tanks": measured_stream("Tanks", "V", sysid.CascadedTanksData(), TANKS_NARX),
    "van_der_pol": Stream(
        title="Van der Pol", unit="m", records=simulate_van_der_pol, narx=VAN_DER_POL_NARX
    ),
    "building": Stream(title="Building", unit="K", records=simulate_building, narx=BUILDING_NARX),
}
NOMINAL_TANKS = simulators.CascadedTanks()
SUDDEN_CLOGGING = simulators.Change(
    "lower_outflow",
    CLOGGED_FRACTION * NOMINAL_TANKS.lower_outflow,
    CLOGGING_START_SAMPLE * NOMINAL_TANKS.dt,
)
SLOW_CLOGGING = replace(
    SUDDEN_CLOGGING, end=SUDDEN_CLOGGING.start + CLOGGING_SAMPLES * NOMINAL_TANKS.dt
)
#: Streams that the paper does not have, for the comparison of online methods.
STREAMS: dict[str, Stream] = {
    "silverbox": measured_stream("Silverbox", "V", sysid.SilverboxData(), SILVERBOX_NARX),
    "tanks_loop": Stream(
        title="Tanks in closed loop", unit="V", records=simulate_tanks_loop, narx=TANKS_NARX
    ),
    "steady": Stream(
        title="Tanks, nothing changes", unit="V", records=simulate_tanks, narx=TANKS_NARX
    ),
    "clogging": Stream(
        title="Tanks, outlet clogs slowly",
        unit="V",
        records=partial(simulate_tanks, changes=[SLOW_CLOGGING]),
        narx=TANKS_NARX,
    ),
    "clogged": Stream(
        title="Tanks, outlet clogs at once",
        unit="V",
        records=partial(simulate_tanks, changes=[SUDDEN_CLOGGING]),
        narx=TANKS_NARX,
    ),
    "failing_sensor": Stream(
        title="Tanks, sensor with outliers",
        unit="V",
        records=partial(simulate_tanks, noise=FAULTY_SENSOR),
        narx=TANKS_NARX,
    ),
    "changed_building": Stream(
        title="Building, radiator and wall change",
        unit="K",
        records=simulate_changed_building,
        narx=BUILDING_NARX,
    ),
}
#: Records of the literature whose lags are identified, too.
LITERATURE_TASKS: dict[str, Task] = {
    name: Task(title=title, unit=unit, source=SMALL_RECORDS[name], is_random=False)
    for name, title, unit in (
        ("actuator", "Actuator", "as measured"),
        ("ball_beam", "Ball and beam", "as measured"),
        ("drives", "Drives", "as measured"),
        ("dryer", "Dryer", "V"),
        ("gas_furnace", "Gas furnace", "%"),
    )
}
#: Plants whose inputs are chosen, or excited.
EXCITED_TASKS: dict[str, Task] = {
    name: Task(title=plant.title, unit=plant.unit) for name, plant in EXCITED_PLANTS.items()
}
#: Plants under the controllers of the study `control`.
CONTROL_TASKS: dict[str, Task] = {
    "heating": Task(title="Building, one year", unit="K"),
    "clogging_radiator": Task(title="Building, radiator clogs", unit="K"),
    "level_steps": Task(title="Tanks, steps of the level", unit="V"),
}
#: All tasks by their name in the configuration.
STUDY_TASKS: dict[str, Task] = {
    **PAPER_TASKS,
    **STREAMS,
    **LITERATURE_TASKS,
    **EXCITED_TASKS,
    **CONTROL_TASKS,
}


def draw_records(task: str, seed: int, building_samples: int = YEAR_SAMPLES) -> Records:
    """Return the records of a task in time; the Building may be shorter than a year."""
    if task == "building":
        return simulate_building(seed, building_samples)
    stream = STUDY_TASKS[task]
    assert isinstance(stream, Stream)
    return stream.records(seed)


def draw_rows(task: str, seed: int, building_samples: int = YEAR_SAMPLES) -> tuple[Rows, Rows]:
    """Return training and test rows of a task; the Building may be shorter than a year."""
    if task == "building":
        return simulate_building(seed, building_samples).rows(BUILDING_NARX)
    rows = STUDY_TASKS[task]
    assert isinstance(rows, RowTask)
    return rows.draw(seed)


def load_task(
    task: str,
    seed: int,
    *,
    n_initial: int,
    most_rows: int,
    building_samples: int = YEAR_SAMPLES,
) -> TaskData:
    """Return the standardised rows of a task.

    At most `most_rows` rows of the stream and of the test are kept: the first rows of the stream,
    and every k-th test row.
    """
    training, test = draw_rows(task, seed, building_samples)
    first = slice(n_initial + most_rows)
    step = math.ceil(len(test.targets) / most_rows)
    training = Rows(training.inputs[first], training.targets[first])
    test = Rows(test.inputs[::step], test.targets[::step])
    return TaskData.of(training, test, n_initial)
