"""Linear views of models of noisy simulated plants, beside the true linearisation.

``pytest -m slow -s tests/experiments/test_linear_view_of_plants.py`` prints the table of
docs/how_to/linear_view.md with the lags and the number of points of the first seed. The lags of the
tanks are searched for. Those of the other plants are given, because their search takes half a
minute and finds just these; their linear part and the number of their points are found. Plants
whose other seeds need their own have one seed, and a plant whose search is long has half the
samples. With SYSID_EVERY_PLANT=1 every plant has all seeds and samples, and all are found for each,
as in the table; a plant takes minutes.
"""

import os
import warnings
from typing import NamedTuple

import numpy as np
import pytest

from experiments.plant.plant import plant_of
from experiments.validate.linear_view import ViewOfInput
from helpers.commands import compose_configuration
from simulators import linearise
from sysid import Narx, identify
from sysid.simulation.empirical_response import empirical_response

N_SAMPLES = 3000
# Of a plant whose lags take a minute to find in all of them: half as many show as much, and bands
# of half the width cover too little.
N_SAMPLES_OF_LONG_SEARCH = 1500
SEEDS = (0, 1, 2)
ARE_LAGS_FOUND_FOR_EVERY_SEED = bool(os.environ.get("SYSID_EVERY_PLANT"))
# Frequencies of the excited band that are compared.
N_FREQUENCIES = 60

BUILDING = (
    "system=building",
    "controller=none",
    "excitation=aprbs",
    "excitation.shortest_hold=3600",
    "excitation.longest_hold=36000",
)
TANKS = ("system=cascaded_tanks", "excitation=multisine", "excitation.band=[0.0003,0.02]")


class PlantCase(NamedTuple):
    """A plant, and what is reached with it."""

    overrides: tuple[str, ...]
    covered: float  # least share of the frequencies that the bands cover, mean of both bands [-]
    #: lags by default: those that are found for the first seed; None: they are searched for
    narx: Narx | None = None
    #: seeds by default; all have the linear part and the number of points of the first.
    #: With those of another seed the band of the tanks covers a third of the phase, that of the
    #: building three quarters or less of the magnitude: these have the seed that is nearest to the
    #: limits
    seeds: tuple[int, ...] = SEEDS
    n_samples: int = N_SAMPLES  # by default


PLANTS = {
    "Silverbox": PlantCase(
        ("system=silverbox",),
        0.88,
        Narx({"output_voltage": 9}, {"input_voltage": 2}),
        seeds=(0,),
    ),
    "Wiener-Hammerstein": PlantCase(
        ("system=wiener_hammerstein",),
        0.88,
        Narx({"response": 9}, {"voltage": 9}),
        seeds=(0,),
    ),
    "tanks": PlantCase(TANKS, 0.7, seeds=(2,)),
    "building": PlantCase(
        BUILDING,
        0.88,
        Narx({"zone_temperature": 5}, {"ambient_temperature": 5, "mass_flow": 5}),
        seeds=(2,),
    ),
    "heater at 0.5 s": PlantCase(
        ("system=heater",), 0.88, Narx({"temperature": 2}, {"heat": 2, "flow": 2})
    ),
    "heater at 5 s": PlantCase(
        ("system=heater", "system.dt=5", "system.heat_delay=1", "system.substeps=20"),
        0.88,
        Narx({"temperature": 2}, {"heat": range(2, 8), "flow": 6}),
        n_samples=N_SAMPLES_OF_LONG_SEARCH,
    ),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_bands_cover_the_true_linearisation_of_a_noisy_plant(name):
    case = PLANTS[name]
    plant = plant_of(compose_configuration(*case.overrides, "noise.snr_db=40"))
    n_samples = N_SAMPLES if ARE_LAGS_FOUND_FOR_EVERY_SEED else case.n_samples
    narx = "auto"
    if case.narx is not None and not ARE_LAGS_FOUND_FOR_EVERY_SEED:
        narx = case.narx
    budget = "auto"
    for seed in SEEDS if ARE_LAGS_FOUND_FOR_EVERY_SEED else case.seeds:
        record = plant.trajectory(n_samples, seed).to_dataset()
        found = identify(
            record,
            narx,
            outputs=plant.outputs,
            inputs=plant.inputs,
            identified=1.0,
            budget=budget,
        )
        if not ARE_LAGS_FOUND_FOR_EVERY_SEED:
            narx = found.model.narx
            budget = found.model.gp.budget
        covered = compare_views(f"{name}, seed {seed}", plant, record, found)
        assert np.mean(covered) > case.covered


def compare_views(title, plant, record, found):
    """Print and check the errors of the linear views of a model; return the covered fractions.

    The fractions are those of magnitude and phase, for each input in turn.
    """
    (output,) = plant.outputs
    means = {input: float(record[input].mean()) for input in plant.inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        view = found.linearize(means)
        by_factor = found.model.linearize(means)
    truth = linearise(plant.system, list(means.values()), interpolation=plant.interpolation)
    signals = {signal: record[signal].values for signal in (output, *plant.inputs)}
    spectra = empirical_response([signals], output, view.inputs, plant.system.dt)
    views = {"record": view, "simulation": view.by_simulation, "factor": by_factor}
    covered = []
    for column, input in enumerate(view.inputs):
        band = spectra.band(column)
        f = np.geomspace(*band, N_FREQUENCIES)
        of_plant = truth.frequency_response(f)[:, 0, plant.inputs.index(input)]
        for kind, one in views.items():
            found_at = one.frequency_response(f).sel(output=output, input=input)
            seen = ViewOfInput(output, input, 0.5, one, found_at, found_at, of_plant, None)
            errors = seen.errors(band)
            print(
                f"\n{title}, {input}, {kind}: {errors['median_error_db']:.2f} dB, "
                f"{errors['median_error_deg']:.2f} deg, close {100 * errors['close']:.0f} %, "
                f"covered {100 * errors['coverage_magnitude']:.0f} %, "
                f"{100 * errors['coverage_phase']:.0f} %",
                end="",
            )
            if kind == "record":
                covered += [errors["coverage_magnitude"], errors["coverage_phase"]]
                assert errors["median_error_db"] < 2.0
                assert errors["median_error_deg"] < 15.0
    return covered
