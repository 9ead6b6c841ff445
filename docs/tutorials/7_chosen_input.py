"""
A plant asked the right questions
=================================

A tank is identified while its pump is excited. In one run the present model chooses the next
stretch of the pump voltage: the one of 30 that is expected to tell most, and that keeps the level
within limits. Other runs have fixed excitations of the same power. You will see what is chosen,
where it goes, and what it brings.
"""

# %%
# The plant
# ---------
#
# The pump begins to deliver at about 2.5 V. Above 1 m the tank has a second outlet. The level is
# measured every second. The equation only simulates the plant; the model is given the signals
# alone.

from dataclasses import dataclass
from math import sqrt, tanh
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

from simulators import APRBS, FilteredNoise, Multisine, Signal, System, simulate
from sysid import (
    Adaptive,
    Identification,
    InformationGain,
    InformativeInput,
    InputLimits,
    LagWindow,
    Narx,
    Settings,
)


@dataclass(frozen=True)
class Tank(System):
    """A tank whose pump delivers late, and whose second outlet is at 1 m."""

    states: ClassVar = (Signal("height", "m", "height of the water"),)
    inputs: ClassVar = (Signal("pump", "V", "voltage of the pump"),)
    outputs: ClassVar = (Signal("level", "m", "measured height"),)
    noises: ClassVar = (Signal("waves", "m/s", "noise of the inflow"),)
    dt: float = 1.0  # s
    substeps: int = 4

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        height = max(state[0], 0.0)
        voltage = max(input[0], 0.0)
        inflow = 0.03 * (1.0 + tanh(2.0 * (voltage - 2.5))) * sqrt(voltage)
        outflow = 0.06 * sqrt(height) * (1.0 + 0.4 * tanh(4.0 * (height - 1.0)))
        derivative[0] = inflow - outflow + noise[0]

    def parameters(self):
        return np.zeros(0)

    def initial_state(self):
        return np.array([0.8])

    def noise_std(self):
        return np.array([0.001])

    def output(self, state):
        return state[..., :1]


N_AT_A_TIME = 5  # samples after which a plan is compared with the plant

plant = Tank()
narx = Narx({"level": 1}, {"pump": 1}, predict="change")
settings = Settings(training=Adaptive(n_initial=50), budget=50, linear_part="none")

# %%
# ``Experiment`` applies a stretch of the pump voltage, and learns every sample of it.


class Experiment:
    """The plant, and the model that follows it."""

    def __init__(self, seed):
        self.seed = seed
        self.level = np.zeros(0)
        self.pump = np.zeros(0)
        self.state = None
        self.identification = Identification(narx, settings)
        self.window = LagWindow(narx)

    def apply(self, stretch):
        inputs = np.append(stretch, stretch[-1])
        seed = 1000 * self.seed + len(self.level)
        trajectory = simulate(plant, inputs, initial_state=self.state, seed=seed)
        self.state = trajectory.state[-1]
        level = trajectory.output[:-1]
        rows = self.window.observe_many(level, stretch[:, None])
        self.identification.observe_many(rows.regressor, rows.target)
        self.level = np.append(self.level, level)
        self.pump = np.append(self.pump, stretch)

    def follow(self, design):
        """Apply the next stretch of a design, a few samples at a time, and return the decision."""
        decision = design.next(self.identification, self.level[:, None], self.pump[:, None])
        stretch = decision.inputs["pump"]
        for n_applied in range(0, len(stretch), N_AT_A_TIME):
            known = self.level[:, None], self.pump[:, None]
            if design.should_end(decision, n_applied, self.identification, *known):
                break
            self.apply(stretch[n_applied : n_applied + N_AT_A_TIME])
        return decision


# %%
# The design
# ----------
#
# The voltage stays between 0 and 5 V, and its root mean square about 2.5 V is at most that of
# uniform random levels. The level shall stay between 0.2 and 2 m for at least 95 % of the planned
# samples. A stretch has 50 samples: the tank needs that long to go from one end to the other. Until
# the first 50 samples are learned there is no model, and nothing is planned. A stretch ends early
# if the plant contradicts the plan so much that the level would leave its limits.

LEVEL_LIMITS = (0.2, 2.0)  # m
POWER = 2.5 / np.sqrt(3)  # V
HORIZON = 50  # samples
N_SAMPLES = 500


def make_design(seed):
    """Return what chooses the stretches."""
    return InformativeInput(
        {"pump": InputLimits(0.0, 5.0, rms=POWER)},
        horizon=HORIZON,
        criterion=InformationGain(),
        output_limits={"level": LEVEL_LIMITS},
        seed=seed,
    )


design = make_design(seed=0)
designed = Experiment(seed=0)
decisions = []
while len(designed.level) < N_SAMPLES:
    first = len(designed.level)
    decisions.append((first, designed.follow(design)))
print(f"{design.n_decisions} decisions, {design.n_fallbacks} of them without the best plan")

# %%
# A decision is a plan: the voltages, and the level that they are expected to lead to, with its
# band. The figure shows the last six plans, and the level that was measured later.

fig, axes = plt.subplots(2, 1, figsize=(8, 4.5), sharex=True, layout="constrained")
last_decisions = decisions[-6:]
shown = slice(last_decisions[0][0], len(designed.level))
samples = np.arange(len(designed.level))
ends = [first for first, _ in last_decisions[1:]] + [len(designed.level)]
for number, ((first, decision), end) in enumerate(zip(last_decisions, ends, strict=True)):
    planned = np.arange(first, end)
    low = decision.low[: end - first, 0]
    high = decision.high[: end - first, 0]
    label = "planned, 95 % band" if number == 0 else None
    axes[0].fill_between(planned, low, high, color="C1", alpha=0.35, linewidth=0, label=label)
    axes[0].plot(planned, decision.mean[: end - first, 0], color="C1", linewidth=1)
axes[0].plot(samples[shown], designed.level[shown], "k:", label="measured")
for limit in LEVEL_LIMITS:
    axes[0].axhline(limit, color="gray", linestyle="--", linewidth=0.8)
axes[0].set(ylabel="level [m]")
axes[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
axes[1].step(samples[shown], designed.pump[shown], where="post")
axes[1].set(xlabel="sample", ylabel="pump voltage [V]")
plt.show()

# %%
# Fixed excitations
# -----------------
#
# Steps, filtered noise and a multisine have the same limits and the same power. Where they leave
# the range they are clipped. Gentle steps have half of the power, to keep the level within its
# limits more often.

GENTLE = 0.7


def fixed_signal(kind, seed):
    """Return a signal between 0 and 5 V with a given root mean square about 2.5 V."""
    excitation = {
        "gentle steps": APRBS(shortest_hold=3.0, longest_hold=25.0),
        "steps": APRBS(shortest_hold=3.0, longest_hold=25.0),
        "noise": FilteredNoise(band=(0.0, 0.1)),
        "multisine": Multisine(band=(1 / N_SAMPLES, 0.1)),
    }[kind]
    signal = excitation.signal(N_SAMPLES, plant.dt, np.random.default_rng(seed))
    rms = GENTLE * POWER if kind == "gentle steps" else POWER
    factor = 1.0
    for _ in range(60):
        factor *= rms / np.sqrt(np.mean(np.clip(factor * signal, -2.5, 2.5) ** 2))
    return 2.5 + np.clip(factor * signal, -2.5, 2.5)


KINDS = ("steps", "gentle steps", "noise", "multisine")
runs = {"designed": designed}
for kind in KINDS:
    runs[kind] = Experiment(seed=0)
    runs[kind].apply(fixed_signal(kind, seed=0))
for name, run in runs.items():
    rms = np.sqrt(np.mean((run.pump - 2.5) ** 2))
    is_outside = (run.level < LEVEL_LIMITS[0]) | (run.level > LEVEL_LIMITS[1])
    print(f"{name:12}  {rms:.2f} V,  {100 * is_outside.mean():4.1f} % of the samples outside")

# %%
# Where they go
# -------------
#
# A model of these lags is a function of one level and one voltage. The plant is known here, so that
# the error of each model can be computed all over this plane. The dots are the samples that the
# model has learned; dark areas are well known. Noise and multisine stay where the mean voltage
# keeps the level, and both kinds of steps leave the limits. The designed input goes where the model
# knows least, but not beyond the limits.

levels, voltages = np.meshgrid(np.linspace(*LEVEL_LIMITS, 25), np.linspace(0.0, 5.0, 25))
plane = np.column_stack([levels.ravel(), voltages.ravel()])
true_change = np.array(
    [
        simulate(plant, np.full(2, u), initial_state=[y], noise=False).output[1, 0] - y
        for y, u in plane
    ]
)

fig, axes = plt.subplots(1, 5, figsize=(10, 3), sharex=True, sharey=True, layout="constrained")
for axis, (name, run) in zip(axes, runs.items(), strict=True):
    error = np.abs(run.identification.model.predict(plane).mean - true_change)
    picture = axis.pcolormesh(
        voltages,
        levels,
        1000 * error.reshape(levels.shape),
        norm=LogNorm(0.1, 100),
        cmap="cividis",
        shading="nearest",
    )
    axis.set_facecolor("silver")
    axis.plot(run.pump, run.level, ".", color="white", markersize=2)
    for limit in LEVEL_LIMITS:
        axis.axhline(limit, color="gray", linestyle="--", linewidth=0.8)
    axis.set(title=name, xlabel="pump voltage [V]", ylim=(0.0, 2.2))
axes[0].set_ylabel("level [m]")
fig.colorbar(picture, ax=axes, label="error one step ahead [mm]")
plt.show()

# %%
# What it brings
# --------------
#
# The root mean square of this error, over the samples. Every excitation is applied five times, and
# the medians are drawn.


def errors_over_time(kind, seed):
    """Return the errors [mm] after `CHECKS` samples; a stretch may end a few samples later."""
    experiment = Experiment(seed)
    chooser = make_design(seed)
    signal = fixed_signal(kind, seed) if kind != "designed" else None
    errors = []
    for n_samples in CHECKS:
        while len(experiment.level) < n_samples:
            if signal is None:
                experiment.follow(chooser)
            else:
                experiment.apply(signal[len(experiment.level) : n_samples])
        predicted = experiment.identification.model.predict(plane).mean
        errors.append(1000 * np.sqrt(np.mean((predicted - true_change) ** 2)))
    return errors


CHECKS = np.arange(100, N_SAMPLES + 1, HORIZON)

fig, axis = plt.subplots(figsize=(8, 3), layout="constrained")
for kind in ("designed", *KINDS):
    errors = np.median([errors_over_time(kind, seed) for seed in range(5)], axis=0)
    width = 2.5 if kind == "designed" else 1.2
    axis.semilogy(CHECKS, errors, ".-", linewidth=width, label=kind)
    print(
        f"{kind:12}  {errors[0]:5.1f} mm after 100 samples, {errors[-1]:4.1f} mm after {N_SAMPLES}"
    )
axis.set(xlabel="samples", ylabel="error one step ahead [mm]")
axis.legend(frameon=False, ncols=5, loc="lower right", bbox_to_anchor=(1, 1))
plt.show()

# %%
# The error of the design is half of that of noise and multisine, which keep the limits, too. Steps
# learn more, but they leave the limits in every seventh sample. Every fixed excitation that keeps
# them better leaves out a part of the plane. This plant has what a
# design needs: the lags are right, and few samples are enough. It is not always so. The study
# ``sysid-reproduce study=excitation`` compares excitations on seven plants, beside a choice that
# knows the true plant: see the :doc:`results </explanation/results>`. :doc:`Inputs that are chosen
# to learn </how_to/chosen_inputs>` has all options. The :doc:`glossary </explanation/glossary>`
# explains our words.
