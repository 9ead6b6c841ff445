"""Results of an online GP on fixed streams, to compare compiled with plain Python code.

Run as a script, this file writes the results to a file. A process without the compiler does so.
"""

import sys

import numpy as np
from numba import config

import naive
from sysid import Forward, OnlineGP, UpdateReport, log_marginal_likelihood

N_SAMPLES = 40  # of each stream that goes through the rules
N_KERNEL_SAMPLES = 25  # of the stream that each kernel learns
BUDGET = 9


def arrays_of(reports):
    """Return the fields of reports as arrays by name."""
    return {name: np.array(reports[name]) for name in UpdateReport._fields}


def results_of_rules(criterion, acceptance, insertion, seed):
    """Return the reports, the final state and predictions of one stream, by name."""
    x, y = naive.random_stream(N_SAMPLES, 2, seed=seed)
    gp = naive.online_gp(
        2, budget=BUDGET, insertion=insertion, acceptance=acceptance, reduction=criterion
    )
    results = arrays_of(gp.update_many(x, y))
    gp.reduce_to(gp.n_points - 2)
    for name, value in gp.state().items():
        results[f"state-{name}"] = value
    results["predicted"] = np.array(gp.predict(x[:20]))
    return results


def results_of_kernel(kernel):
    """Return the reports of one stream and the marginal likelihood of its samples, by name."""
    x, y = naive.random_stream(N_KERNEL_SAMPLES, 3, seed=1)
    gp = OnlineGP(kernel, noise_variance=0.05, budget=8)
    results = arrays_of(gp.update_many(x, y))
    likelihood = log_marginal_likelihood(kernel, 1e-2, x, y)
    results["likelihood"] = np.array(likelihood.value)
    results["gradient"] = likelihood.gradient
    return results


def selected_samples(criterion):
    """Return the samples that forward selection chooses, in order, if each occurs three times."""
    x, y = naive.random_stream(N_SAMPLES // 3, 2, seed=2)
    gp = naive.online_gp(2, budget=2 * BUDGET, reduction=criterion)
    Forward().fill(gp, np.repeat(x, 3, axis=0), np.repeat(y, 3))
    return gp.sample_numbers[gp.age_order]


def run_fixed_streams():
    """Return the results of every criterion, acceptance rule, insertion rule and kernel."""
    arrays = {"compiled": np.array(not config.DISABLE_JIT)}
    for criterion in naive.CRITERIA:
        for case, acceptance in enumerate(naive.matched_and_crossed(criterion)):
            rule = naive.INSERTIONS[case % len(naive.INSERTIONS)]
            insertion = naive.insertion_rule(rule, 0.01, 0.1)
            results = results_of_rules(criterion, acceptance, insertion, seed=case)
            for name, value in results.items():
                arrays[f"{naive.criterion_name(criterion)}-{case}-{name}"] = value
        arrays[f"{naive.criterion_name(criterion)}-selected"] = selected_samples(criterion)
    for kernel_name, kernel in naive.FAMILY.items():
        for name, value in results_of_kernel(kernel).items():
            arrays[f"{kernel_name}-{name}"] = value
    return arrays


if __name__ == "__main__":
    np.savez(sys.argv[1], **run_fixed_streams())
