"""What a search chooses from, read from overrides in Hydra's own notation."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep, Sweep
from hydra.errors import HydraException

from experiments.sweeps.keys import meant

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LOG = "log"  # the tag of an interval in which ratios count
DIGITS = 6  # of a number out of an interval: of its span, on a logarithmic scale of the number


@dataclass(frozen=True)
class Parameter:
    """What a sampler chooses for one key: one of some values, or any number of an interval."""

    key: str  # as the command line writes it, a plus included
    values: Sequence[Any] | None = None  # None: an interval
    ordered: bool = False  # whether neighbours among the values are alike
    low: float = math.nan  # of an interval, included
    high: float = math.nan
    log: bool = False  # whether ratios count, not differences
    whole: bool = False

    def distribution(self) -> "BaseDistribution":
        """What Optuna chooses from: numbers, places among the values, or the values."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.values is not None:
            return IntDistribution(0, len(self.values) - 1) if self.ordered else CategoricalDistribution(self.values)
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def value(self, chosen: Any) -> Any:
        """Value of the key for what Optuna has chosen; of an interval in a few digits, so that a command repeats it.

        >>> Parameter("x", low=0.03, high=0.5).value(0.123456789)
        0.123457
        >>> Parameter("x", low=1e-4, high=1.0, log=True).value(0.000123456789)
        0.000123457
        """
        if self.values is not None:
            return self.values[chosen] if self.ordered else chosen
        if self.whole:
            return int(chosen)
        scale = abs(chosen) if self.log else self.high - self.low
        return min(max(round(chosen, DIGITS - 1 - math.floor(math.log10(scale))), self.low), self.high) + 0.0

    @property
    def extremes(self) -> Sequence[Any]:
        """Values to check before anything is run."""
        if self.values is not None:
            return [self.values[0], self.values[-1]] if self.ordered else self.values
        return [int(self.low), int(self.high)] if self.whole else [self.low, self.high]

    @property
    def n_values(self) -> float:
        """How many values there are; infinite of an interval of real numbers."""
        if self.values is not None:
            return len(self.values)
        return self.high - self.low + 1 if self.whole else math.inf


@dataclass(frozen=True)
class Space:
    """Overrides of all trials, what differs between trials, and what every trial runs through."""

    fixed: tuple[str, ...]  # overrides
    parameters: tuple[Parameter, ...]
    averaged: Mapping[str, tuple[str, ...]]  # values by key

    @property
    def swept(self) -> tuple[str, ...]:
        """Keys whose values differ between jobs."""
        return (*(parameter.key for parameter in self.parameters), *self.averaged)

    @property
    def n_jobs(self) -> int:
        """Jobs of a trial."""
        return math.prod(map(len, self.averaged.values()))

    @property
    def n_combinations(self) -> float:
        """Different trials; infinite with an interval."""
        return math.prod(parameter.n_values for parameter in self.parameters)

    def values(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the parameters for what Optuna has chosen, by key."""
        return {parameter.key: parameter.value(chosen[parameter.key]) for parameter in self.parameters}

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Overrides of a trial, without what it averages over."""
        return [*self.fixed, *(f"{key}={value}" for key, value in values.items())]

    def jobs(self, values: Mapping[str, Any]) -> list[list[str]]:
        """Overrides of each job of a trial."""
        groups = [[f"{key}={value}" for value in options] for key, options in self.averaged.items()]
        return [[*self.overrides(values), *combination] for combination in itertools.product(*groups)]

    def corners(self) -> Iterator[list[str]]:
        """Overrides of jobs in which every parameter takes its extreme values, the others their first."""
        first = {parameter.key: parameter.extremes[0] for parameter in self.parameters}
        yield from self.jobs(first)
        for parameter in self.parameters:
            for value in parameter.extremes[1:]:
                yield self.jobs(first | {parameter.key: value})[0]


def space_of(lines: Sequence[str], average_over: Collection[str], loader: ConfigLoader) -> Space:
    """Space that overrides describe; of two for the same key the later one counts.

    Raises
    ------
    ValueError
        Overrides that cannot be read; nothing to search; ranges and intervals that are empty or hold one value; an
        interval of options; an interval to average over.
    """
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(lines))
        last = {one.get_key_element(): one for one in overrides if not one.is_hydra_override()}
        fixed = tuple(str(one.input_line) for one in last.values() if not one.is_sweep_override())
        swept = [one for one in last.values() if one.is_sweep_override()]
        averaged = {one.get_key_element(): _averaged(one) for one in swept if one.key_or_group in average_over}
        parameters = tuple(_parameter(one, loader) for one in swept if one.key_or_group not in average_over)
    except HydraException as error:
        raise ValueError(" ".join(str(error).split())) from None
    named = {one.key_or_group for one in swept}
    for key in average_over:
        if key not in named and key != "seed":
            raise ValueError(f"hydra.sweeper.average_over: {key!r} is not swept{meant(key, named)}")
    if not parameters:
        raise ValueError(
            "there is nothing to search: give intervals, ranges or choices, such as "
            "insertion.error_threshold=interval(0.03,0.5)"
            + (f"; {', '.join(averaged)} is averaged over (hydra.sweeper.average_over)" if averaged else "")
        )
    return Space(fixed, parameters, averaged)


def _averaged(override: Override) -> tuple[str, ...]:
    if override.is_interval_sweep():
        raise ValueError(f"{override.input_line} is averaged over (hydra.sweeper.average_over): list its values")
    values = _texts(override)
    _check_some(values, override)
    return values


def _parameter(override: Override, loader: ConfigLoader) -> Parameter:
    key, sweep, line = override.get_key_element(), override.value(), override.input_line
    options = loader.get_group_options(override.key_or_group)
    if options and not override.is_choice_sweep():
        raise ValueError(
            f"{line}: {override.key_or_group} is chosen by name, numbers mean nothing there: "
            f"{override.key_or_group}=choice({','.join(options[:2])}), of {', '.join(options)}"
        )
    if isinstance(sweep, Sweep) and (strange := sweep.tags - ({LOG} if isinstance(sweep, IntervalSweep) else set())):
        raise ValueError(
            f"{line}: the tag {', '.join(sorted(strange))} means nothing here; an interval can have "
            f"tag({LOG}, interval(0.01,1)) or tag({LOG}, int(interval(1,100)))"
        )
    if isinstance(sweep, IntervalSweep):
        return _interval(key, sweep, str(line))
    values = _steps(sweep) if isinstance(sweep, RangeSweep) else _texts(override)
    _check_some(values, override)
    if len(values) == 1:
        raise ValueError(f"{line} leaves nothing to choose: give {key}={values[0]}")
    return Parameter(key, values, ordered=isinstance(sweep, RangeSweep))


def _steps(sweep: RangeSweep) -> Sequence[Any]:
    """Numbers of a range, upwards."""
    numbers = sweep.range()
    if isinstance(numbers, range):
        return numbers if numbers.step > 0 else numbers[::-1]
    return sorted(numbers)


def _interval(key: str, sweep: IntervalSweep, line: str) -> Parameter:
    low, high = sweep.start, sweep.end
    assert low is not None
    assert high is not None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{line}: an interval needs two finite numbers, the lower one first, and not the same twice")
    if LOG in sweep.tags and low <= 0:
        raise ValueError(f"{line}: on a logarithmic scale both ends must be positive, got {low:g}")
    whole = isinstance(low, int) and isinstance(high, int)
    return Parameter(key, low=low, high=high, log=LOG in sweep.tags, whole=whole)


def _texts(override: Override) -> tuple[str, ...]:
    """Values as the command line writes them."""
    return tuple(dict.fromkeys(override.sweep_string_iterator()))


def _check_some(values: Sequence[Any], override: Override) -> None:
    if not values:
        raise ValueError(f"{override.input_line} sweeps over nothing: the range is empty")
