"""Functions drawn from a prior, by random Fourier features.

A stationary kernel is the characteristic function of its spectral density, ``k(x, x') = variance E cos(w'(x - x'))``
(Bochner), so that with frequencies w_i from it, Gaussian weights and F features::

    f(x) = sqrt(variance / F) sum_i r_i cos(w_i'x + phase_i),   r_i Rayleigh, phase_i uniform

has exactly the covariance of the kernel over all draws (Rahimi and Recht 2008). Every function has frequencies of its
own; F only decides how far it is from Gaussian. Frequencies of the squared exponential kernel are Gaussian, those of
a Matern kernel of smoothness nu Student-t with 2 nu degrees of freedom (Rasmussen and Williams, section 4.2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sysid.kernels import Kernel, Linear, Matern32, Matern52, Product, SquaredExponential, Sum

Array: TypeAlias = NDArray[np.float64]

#: values (n, P) of P functions at points (n, P, p), those of one function in each column
Functions: TypeAlias = Callable[[Array], Array]

BLOCK = 2**20  # cosines computed at once
DEGREES = {Matern32: 3, Matern52: 5}  # of freedom of the frequencies


class Draws(NamedTuple):
    """How many functions to draw, from how many features each, by which generator."""

    n_functions: int
    n_features: int
    generator: np.random.Generator


@dataclass(frozen=True, eq=False)
class Waves:
    """Functions that are sums of F cosines."""

    frequency: Array  # (P, p, F) 1 / unit of the feature
    phase: Array  # (P, F)
    amplitude: Array  # (P, F) target unit

    def __call__(self, points: Array) -> Array:
        """Values (n, P) at points (n, P, p)."""
        step = max(1, BLOCK // self.phase.size)
        blocks = [self._values(points[start : start + step]) for start in range(0, len(points), step)]
        return np.concatenate(blocks) if blocks else np.empty((0, len(self.phase)))

    def _values(self, points: Array) -> Array:
        angle = np.einsum("nsp,spf->nsf", points, self.frequency) + self.phase
        return np.einsum("nsf,sf->ns", np.cos(angle), self.amplitude)


def can_draw(kernel: Kernel) -> bool:
    """Whether `draw` knows this kernel: squared exponential, Matern, linear, and sums and products of them."""
    match kernel:
        case Sum() | Product():
            return all(can_draw(part) for part in kernel.parts)
        case SquaredExponential() | Matern32() | Matern52() | Linear():
            return True
    return False


def draw(kernel: Kernel, draws: Draws) -> Functions:
    """Functions from a Gaussian process of zero mean and this kernel.

    Raises
    ------
    ValueError
        A kernel whose spectral density is not known.
    """
    return _draw_product((kernel,), draws)


def _draw_product(factors: tuple[Kernel, ...], draws: Draws) -> Functions:
    """Functions for the product of kernels: sums are distributed, a linear factor has a function per coefficient."""
    for i, factor in enumerate(factors):
        others = factors[:i] + factors[i + 1 :]
        match factor:
            case Product():
                return _draw_product((*factor.parts, *others), draws)
            case Sum():
                return _added([_draw_product((part, *others), draws) for part in factor.parts])
            case Linear():
                return _draw_linear(factor, others, draws)
    return _draw_waves(factors, draws)


def _added(functions: list[Functions]) -> Functions:
    return lambda points: np.sum([function(points) for function in functions], axis=0)


def _draw_linear(kernel: Linear, others: tuple[Kernel, ...], draws: Draws) -> Functions:
    """``sum_d sqrt(variance_d) x_d g_d(x)`` with g_d drawn from the other factors, constants if there are none."""
    roots = np.sqrt(kernel.parameters())
    drawn = [_draw_product(others, draws) if others else _draw_constants(draws) for _ in roots]

    def trend(points: Array) -> Array:
        terms = (root * points[:, :, d] * drawn[d + 1](points) for d, root in enumerate(roots[1:]))
        return np.asarray(sum(terms, start=roots[0] * drawn[0](points)))

    return trend


def _draw_constants(draws: Draws) -> Functions:
    values = draws.generator.standard_normal(draws.n_functions)
    return lambda points: values


def _draw_waves(factors: tuple[Kernel, ...], draws: Draws) -> Waves:
    """Frequencies of a product of stationary kernels are sums of theirs."""
    shape, generator = (draws.n_functions, draws.n_features), draws.generator
    frequency = sum(_frequencies(factor, shape, generator) for factor in factors)
    variance = np.prod([factor.parameters()[0] for factor in factors])
    amplitude = np.sqrt(variance / draws.n_features) * generator.rayleigh(size=shape)
    phase = generator.uniform(0.0, 2.0 * np.pi, size=shape)
    return Waves(np.ascontiguousarray(np.swapaxes(frequency, 1, 2)), phase, amplitude)


def _frequencies(kernel: Kernel, shape: tuple[int, int], generator: np.random.Generator) -> Array:
    """Frequencies (P, F, p) from the spectral density of a stationary kernel."""
    if not isinstance(kernel, SquaredExponential | Matern32 | Matern52):
        raise ValueError(
            f"Pathwise: the spectral density of {type(kernel).__name__} is not known; SequentialConditioning draws "
            "functions of any kernel"
        )
    normal = generator.standard_normal((*shape, kernel.n_features)) / np.asarray(kernel.length_scales)
    degrees = DEGREES.get(type(kernel))
    if degrees is None:
        return np.asarray(normal)
    return np.asarray(normal * np.sqrt(degrees / generator.chisquare(degrees, size=(*shape, 1))))
