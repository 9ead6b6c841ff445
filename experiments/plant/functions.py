"""A static test function as a source of data."""

from dataclasses import dataclass
from math import isqrt

from experiments.cli.options import MAX_RUN_SAMPLES
from simulators import Grid, Sampling, StaticFunction, random_stream
from simulators.settings import check_not_negative, check_whole
from sysid import DataSource, Recordings


@dataclass(frozen=True)
class FunctionData(DataSource):
    """Noisy samples of a static function to learn from, and a grid over its domain as the test.

    ::

        y_k = f(x_k) + e_k,   e_k ~ N(0, noise_std^2);   the grid is without noise

    Raises
    ------
    ValueError
        If there is no row to learn from, the grid has fewer than two nodes per axis, there are more
        rows or nodes than a run can hold, or the noise is negative.

    Notes
    -----
    Wietzke and Graichen, section 6, learn from 100 and then 500 uniform points, and validate on a
    grid.
    """

    function: StaticFunction
    sampling: Sampling
    n_estimation: int = 600  # rows to learn from
    n_axis: int = 21  # nodes of the grid along each input
    noise_std: float = 0.0  # of the rows to learn from, in the unit of the output
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "n_estimation", 1, MAX_RUN_SAMPLES)
        check_whole(self, "n_axis", 2, isqrt(MAX_RUN_SAMPLES))
        check_not_negative(self, "noise_std")

    def load(self) -> Recordings:
        """Return the samples as the estimation record, and the grid as the test record."""
        function = self.function
        domain = (self.function.lower, self.function.upper)
        points = self.sampling.sample(self.n_estimation, *domain, seed=self.seed)
        rows = function.to_dataset(points)
        noise = random_stream(self.seed, "measurement").standard_normal(self.n_estimation)
        noisy = rows["y"].values + self.noise_std * noise
        rows = rows.assign(y=rows["y"].copy(data=noisy))
        n_nodes = self.n_axis ** len(function.lower)
        grid = function.to_dataset(Grid().sample(n_nodes, *domain))
        return Recordings(function.name, ("x1", "x2"), ("y",), estimation=(rows,), test=(grid,))
