"""Whether the steps are small enough: the estimate is the true error of one sample."""

from dataclasses import replace

import numpy as np
import pytest

from simulators import simulate
from simulators.accuracy import substep_error
from simulators.reference import solve_reference
from simulators.systems.building import Building
from simulators.systems.van_der_pol import VanDerPol


def building_record(substeps):
    u = np.column_stack([np.zeros(40), np.linspace(0, 0.1, 40)])
    return simulate(Building(substeps=substeps), u, seed=1)


@pytest.mark.parametrize("substeps", [5, 8])
def test_estimate_is_the_true_error_of_one_sample(substeps):
    record = building_record(substeps)
    errors = []
    for k in range(39):
        u, w = np.repeat(record.input[k : k + 1], 2, axis=0), np.repeat(record.noise[k : k + 1], 2, axis=0)
        exact = solve_reference(record.system, record.state[k], u, w)[1, 0]
        errors.append(abs(record.state[k + 1, 0] - exact))
    spread = np.diff(record.output[:, 0]).std()
    assert substep_error(record) == pytest.approx(15 / 16 * max(errors) / spread, rel=0.1)


def test_estimate_falls_with_the_fourth_power():
    coarse, fine = (substep_error(building_record(substeps)) for substeps in (20, 40))
    assert np.log2(coarse / fine) == pytest.approx(4, abs=0.3)


def test_an_output_that_rests_is_left_out():
    rest = replace(VanDerPol(), initial_position=0.0, acceleration_noise_std=0.0)
    assert substep_error(simulate(rest, n_samples=5)) == 0


def test_few_samples_are_spread_over_the_record():
    record = simulate(VanDerPol(substeps=1), n_samples=300)
    assert substep_error(record, n_samples=20) <= substep_error(record, n_samples=299)


def test_a_sample_that_diverges_is_infinitely_wrong():
    record = building_record(30)
    stiff = replace(record, system=replace(record.system, substeps=1, radiator_capacity=1e-60))
    assert substep_error(stiff) == np.inf
