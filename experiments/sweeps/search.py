"""A sweep that searches: each trial is chosen by Optuna from the results of those before.

What it chooses from is read from overrides in Hydra's own notation. Nothing of Optuna is stored.
The sampler is seeded and is told of trials in their order, whenever their jobs have ended. So a
search that is resumed asks for the trials that it has asked for before; their jobs are finished,
and it goes on.
"""

import inspect
import itertools
import json
import math
import shlex
import statistics
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from experiments.cli.build import build_one
from experiments.cli.options import meant, whole
from experiments.drawing.tables import to_csv
from experiments.files.identity import code_digest
from experiments.files.job_file import JOB_FILE, SUMMARY_NUMBERS, SUMMARY_TIMES, read_summary
from experiments.sweeps.store import SEARCH, TRIALS, Outcome
from experiments.sweeps.sweep import Sweep, one_line
from sysid import __version__, store
from sysid.errors import UserError

TIME = "times"  # group of a summary whose numbers are measured times
DIRECTIONS = ("minimize", "maximize")
OPTION = "hydra.sweeper.sampler"
# questions in a row that were answered before, until a search has nothing more to ask
MOST_REPEATS = 100
MOST_SHOWN = 10  # trials of a Pareto set on the terminal
LOG = "log"  # the tag of an interval in which ratios count
DIGITS = 6  # of a number out of an interval: of its span, on a logarithmic scale of the number

Values = tuple[tuple[str, Any], ...]  # of the parameters: key and value, in their order


# --- what is asked for


@dataclass
class Settings:
    """Settings of a search, as in conf/hydra/sweeper/optuna.yaml; a single name stands for a list
    of one.

    Raises
    ------
    ValueError
        Settings that make no sense.
    """

    n_trials: int = 30
    n_jobs: int = 1  # trials at a time; their number decides which are asked
    seed: int = 0  # of the sampler
    objectives: Any = ("smse",)  # numbers of the summary of a job
    direction: Any = ("minimize",)  # one for each objective, or one for all
    sampler: Any = None  # with _target_; None: TPE
    average_over: Any = ("seed",)  # swept keys whose values are all run in every trial

    def __post_init__(self) -> None:
        for option, least in {"n_trials": 1, "n_jobs": 1, "seed": 0}.items():
            whole(f"hydra.sweeper.{option}", getattr(self, option), least)
        for option in ("objectives", "direction", "average_over"):
            value = getattr(self, option) or []
            values = [value] if isinstance(value, str) else value
            if not isinstance(values, list | tuple) or not all(
                isinstance(one, str) for one in values
            ):
                raise UserError(
                    f"hydra.sweeper.{option} must be a name or a list of names, got {value!r}"
                )
            setattr(self, option, tuple(values))
        names = self.objectives
        known = {*SUMMARY_NUMBERS, *(f"{TIME}.{part}" for part in SUMMARY_TIMES)}
        if not names or len({*names}) < len(names):
            raise UserError(
                f"hydra.sweeper.objectives must name one or more numbers, none twice, got {list(names)}"
            )
        if unknown := [name for name in names if "." not in name and name not in SUMMARY_NUMBERS]:
            missing = f"no number {unknown[0]!r} in a summary{meant(unknown[0], known)}"
            raise UserError(f"hydra.sweeper.objectives: {missing}")
        self.direction *= len(names) if len(self.direction) == 1 else 1
        if len(self.direction) != len(names) or not {*self.direction} <= {*DIRECTIONS}:
            expected = f"one of {', '.join(DIRECTIONS)} for all objectives or one for each of {list(names)}"
            raise UserError(
                f"hydra.sweeper.direction must be {expected}, got {list(self.direction)}"
            )
        if not (
            self.sampler is None or isinstance(self.sampler, str) or "_target_" in self.sampler
        ):
            raise UserError(
                f"{OPTION} must be null, a class, or {{_target_: ..., ...}}, got {self.sampler!r}"
            )


@dataclass(frozen=True)
class Parameter:
    """What a sampler chooses for one key."""

    key: str  # as the command line writes it, a plus included
    distribution: Any  # of Optuna: numbers of an interval or of a range, or values without an order

    def value(self, chosen: Any) -> Any:
        """Value of the key for what Optuna has chosen; a real number in a few digits, so that a
        command repeats it.
        """
        if not isinstance(chosen, float):
            return chosen
        low = self.distribution.low
        high = self.distribution.high
        step = self.distribution.step
        scale = abs(chosen) if self.distribution.log else step or high - low
        return (
            min(
                max(round(chosen, DIGITS - 1 - math.floor(math.log10(scale))), low),
                high,
            )
            + 0.0
        )

    @property
    def extremes(self) -> Sequence[Any]:
        """Values to check before anything is run."""
        return getattr(self.distribution, "choices", None) or [
            self.distribution.low,
            self.distribution.high,
        ]

    @property
    def n_values(self) -> float:
        """How many values there are; infinite of an interval of real numbers."""
        step = getattr(self.distribution, "step", 0)
        values = self.extremes
        if step is None:
            return math.inf
        return round((values[-1] - values[0]) / step) + 1 if step else len(values)


@dataclass
class Space:
    """Overrides of all trials, what differs between trials, and what every trial runs through."""

    fixed: tuple[str, ...]  # overrides
    parameters: tuple[Parameter, ...]
    averaged: Mapping[str, tuple[str, ...]]  # values by key

    def __post_init__(self) -> None:
        self.swept = (
            *(parameter.key for parameter in self.parameters),
            *self.averaged,
        )  # keys
        self.n_jobs = math.prod(map(len, self.averaged.values()))  # of a trial
        self.n_combinations = math.prod(
            parameter.n_values for parameter in self.parameters
        )  # of different trials

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides of a trial, without what it averages over."""
        return [*self.fixed, *(f"{key}={value}" for key, value in values.items())]

    def jobs(self, values: Mapping[str, Any]) -> list[list[str]]:
        """Return the overrides of each job of a trial."""
        groups = [[f"{key}={value}" for value in options] for key, options in self.averaged.items()]
        return [
            [*self.overrides(values), *combination] for combination in itertools.product(*groups)
        ]

    def corners(self) -> Iterator[list[str]]:
        """Yield the overrides of jobs in which every parameter takes its extreme values.

        The other parameters take their first ones meanwhile.
        """
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
        Overrides that cannot be read; nothing to search; ranges and intervals that are empty or
        hold one value; an interval of options; an interval to average over.
    ImportError
        Without Optuna.
    """
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(lines))
        last = {one.get_key_element(): one for one in overrides if not one.is_hydra_override()}
        fixed = tuple(str(one.input_line) for one in last.values() if not one.is_sweep_override())
        swept = [one for one in last.values() if one.is_sweep_override()]
        averaged = {
            one.get_key_element(): _texts(one) for one in swept if one.key_or_group in average_over
        }
        parameters = tuple(
            _parameter(one, loader) for one in swept if one.key_or_group not in average_over
        )
    except HydraException as error:
        raise UserError(" ".join(str(error).split())) from None
    named = {one.key_or_group for one in swept}
    for key in average_over:
        if key not in named and key != "seed":
            raise UserError(f"hydra.sweeper.average_over: {key!r} is not swept{meant(key, named)}")
    if not parameters:
        over = (
            f"; {', '.join(averaged)} is averaged over (hydra.sweeper.average_over)"
            if averaged
            else ""
        )
        example = "insertion.error_threshold=interval(0.03,0.5)"
        raise UserError(
            f"there is nothing to search: give intervals, ranges or choices, such as {example}{over}"
        )
    return Space(fixed, parameters, averaged)


def _parameter(override: Override, loader: ConfigLoader) -> Parameter:
    distributions = _optuna().distributions
    key = override.get_key_element()
    sweep = override.value()
    line = override.input_line
    options = loader.get_group_options(override.key_or_group)
    if options and not override.is_choice_sweep():
        choice = f"{override.key_or_group}=choice({','.join(options[:2])}), of {', '.join(options)}"
        raise UserError(
            f"{line}: {override.key_or_group} is chosen by name, numbers mean nothing there: {choice}"
        )
    tags: set[str] = getattr(sweep, "tags", set())
    if strange := tags - ({LOG} if isinstance(sweep, IntervalSweep) else set()):
        raise UserError(
            f"{line}: the tag {', '.join(strange)} means nothing here; an interval can have {LOG}"
        )
    if isinstance(sweep, IntervalSweep):
        low = sweep.start or 0
        high = sweep.end or 0
        log = LOG in tags
        step = None
        if not (math.isfinite(low) and math.isfinite(high) and low < high) or (log and low <= 0):
            needs = f"two finite numbers, the lower one first, both positive with the tag {LOG}"
            raise UserError(f"{line}: an interval needs {needs}")
    elif isinstance(sweep, RangeSweep):
        numbers: Any = sweep.range()  # which may be long
        numbers = numbers if isinstance(numbers, range) else list(numbers)
        low, high, log, step = *_ends(numbers, line), False, abs(sweep.step)
    else:
        values = _texts(override)
        _ends(values, line)
        return Parameter(key, distributions.CategoricalDistribution(values))
    if isinstance(low, int) and isinstance(high, int):
        return Parameter(key, distributions.IntDistribution(low, high, log=log, step=step or 1))
    return Parameter(key, distributions.FloatDistribution(low, high, log=log, step=step))


def _ends(values: Sequence[Any], line: str | None) -> list[Any]:
    """Return the smallest and the largest of at least two values, which are in an order."""
    if not values:
        raise UserError(f"{line} sweeps over nothing: the range is empty")
    if len(values) == 1:
        raise UserError(
            f"{line} leaves nothing to choose: give {str(line).partition('=')[0]}={values[0]}"
        )
    return sorted((values[0], values[-1]))


def _texts(override: Override) -> tuple[str, ...]:
    """Values as the command line writes them, of which there is one at least."""
    if override.is_interval_sweep():
        raise UserError(
            f"{override.input_line} is averaged over (hydra.sweeper.average_over): list its values"
        )
    values = tuple(dict.fromkeys(override.sweep_string_iterator()))
    if not values:
        raise UserError(f"{override.input_line} sweeps over nothing: the range is empty")
    return values


# --- what is found


class Trial(NamedTuple):
    """One point of a search, and how good it is."""

    number: int
    values: dict[str, Any]  # of the parameters, by key
    jobs: tuple[int, ...]  # numbers of their folders
    objectives: tuple[float, ...] = ()  # empty if the trial has failed
    error: str = ""  # why it has failed


def judge(trial: Trial, outcomes: Sequence[Outcome], folder: Path, names: Sequence[str]) -> Trial:
    """Return the trial with the median of each objective over its jobs; failed if one has none.

    Raises
    ------
    ValueError
        If there is no such objective, with the nearest that there is.
    sysid.StoreError
        If the result of a finished job cannot be read.
    """
    for outcome in outcomes:
        if not outcome.done:
            return trial._replace(error=f"job {outcome.number}: {outcome.error}")
    rows = []
    for job in trial.jobs:
        summary = read_summary(folder / str(job) / JOB_FILE)
        rows.append([objective(summary, name) for name in names])
        if None in rows[-1]:
            missing = names[rows[-1].index(None)]
            return trial._replace(
                error=f"job {job} has no {missing}: its summary holds no number there"
            )
    return trial._replace(objectives=tuple(map(statistics.median, zip(*rows, strict=True))))


def objective(summary: Mapping[str, Any], name: str) -> float | None:
    """Look up a number of a summary by its name, "smse" or "times.loop".

    The number is None if a run like this one has none there.

    Raises
    ------
    ValueError
        If summaries know no such name.

    >>> objective({"smse": 0.5, "times": {"loop": 2.0}, "free_run": None}, "times.loop")
    2.0
    >>> objective({"free_run": None}, "free_run.rmse") is None
    True
    """
    found: Any = summary
    for key in name.split("."):
        found = found.get(key, ...) if isinstance(found, Mapping) else ...
        if found is None:
            return None
    if isinstance(found, int | float):
        return float(found) if math.isfinite(found) else None
    row = pd.json_normalize(dict(summary)).iloc[0].to_dict()
    numbers = [
        key for key, value in row.items() if isinstance(value, int | float) and not pd.isna(value)
    ]
    raise UserError(
        f"hydra.sweeper.objectives: no number {name!r} in the summary of a job{meant(name, numbers)}"
    )


class Search:
    """A search that goes on: Optuna's study, and all trials so far, no two alike.

    Parameters
    ----------
    settings : Settings
    space : Space
    command : str
        As typed, "sysid-identify".

    Raises
    ------
    ImportError
        Without Optuna.
    ValueError
        A sampler that there is not, or that refuses its settings.
    """

    def __init__(self, settings: Settings, space: Space, command: str) -> None:
        self.settings = settings
        self.space = space
        self.command = command
        self.trials: dict[Values, Trial] = {}  # in their order
        self._study = _optuna().create_study(
            sampler=_sampler(settings), directions=list(settings.direction)
        )

    @property
    def failed(self) -> list[Trial]:
        """Trials without objectives."""
        return [trial for trial in self.trials.values() if trial.error]

    @property
    def best(self) -> list[Trial]:
        """The best trial, or all than which none is better in one objective and as good in the
        others.
        """
        found = {self.trials[self._values(one.params)].number for one in self._study.best_trials}
        best = [trial for trial in self.trials.values() if trial.number in found]
        return best if len(self.settings.objectives) > 1 else best[:1]

    def batch(self, sweep: Sweep) -> bool:
        """Ask for some trials, run them side by side, tell what became of them; False if there is
        nothing to ask.
        """
        with self._understood():
            asked = self._ask(min(self.settings.n_jobs, self.settings.n_trials - len(self.trials)))
        jobs = {values: self.space.jobs(dict(values)) for _, values in asked}
        outcomes = iter(sweep.run([job for own in jobs.values() for job in own]) if jobs else ())
        for values, own in jobs.items():
            ended = list(itertools.islice(outcomes, len(own)))
            trial = Trial(
                len(self.trials),
                dict(values),
                tuple(outcome.number for outcome in ended),
            )
            self.trials[values] = judge(trial, ended, sweep.folder, self.settings.objectives)
        with self._understood():
            for question, values in asked:
                self._tell(question, self.trials[values])
        return bool(asked)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Tell what the sampler does not take as a mistake of the settings."""
        try:
            yield
        except (TypeError, RuntimeError, NotImplementedError) as error:
            here = f"{type(self._study.sampler).__name__} cannot search here ({error})"
            raise UserError(f"{OPTION}: {here}; all combinations: hydra/sweeper=grid") from error

    def _ask(self, n_trials: int) -> list[tuple[int, Values]]:
        """Ask for new trials: each question, and the values that it asks for; old ones are answered
        at once.
        """
        asked: dict[Values, list[int]] = {}
        distributions = {
            parameter.key: parameter.distribution for parameter in self.space.parameters
        }
        repeats = 0
        while (
            len(asked) < min(n_trials, self.space.n_combinations - len(self.trials))
            and repeats < MOST_REPEATS
        ):
            question = self._study.ask(distributions)
            values = self._values(question.params)
            repeats = repeats + 1 if values in self.trials or values in asked else 0
            if values in self.trials:
                self._tell(question.number, self.trials[values])
            else:
                asked.setdefault(values, []).append(question.number)
        return sorted((number, values) for values, numbers in asked.items() for number in numbers)

    def _tell(self, question: int, trial: Trial) -> None:
        states = _optuna().trial.TrialState
        self._study.tell(
            question,
            trial.objectives or None,
            states.FAIL if trial.error else states.COMPLETE,
        )

    def _values(self, chosen: Mapping[str, Any]) -> Values:
        return tuple(
            (parameter.key, parameter.value(chosen[parameter.key]))
            for parameter in self.space.parameters
        )

    def write(self, folder: Path) -> None:
        """Write the table of all trials and a file of the best, each complete or not at all.

        Raises
        ------
        sysid.StoreError
            Full disk, read-only folder.
        """
        names = self.settings.objectives
        rows = []
        for trial in self.trials.values():
            row = {
                "trial": trial.number,
                "state": "failed" if trial.error else "done",
                **trial.values,
            }
            row |= dict.fromkeys(names) | dict(zip(names, trial.objectives, strict=False))
            rows.append(
                row
                | {
                    "jobs": " ".join(map(str, trial.jobs)),
                    "error": " ".join(trial.error.split()),
                }
            )
        store.write_bytes(to_csv(pd.DataFrame(rows, dtype=object)).encode(), folder / TRIALS)
        best = [
            {
                "trial": trial.number,
                "parameters": trial.values,
                "objectives": dict(zip(names, trial.objectives, strict=True)),
                "jobs": trial.jobs,
                "command": self.command_of(trial),
            }
            for trial in self.best
        ]
        content = {
            "version": __version__,
            "code": code_digest(),
            "optuna": version("optuna"),
            "sampler": type(self._study.sampler).__name__,
            "settings": vars(self.settings) | {"average_over": dict(self.space.averaged)},
            #: whether the same search in a new folder asks for the same trials: not if it goes by measured times
            "repeatable": not any(TIME in name.split(".") for name in names),
            "n_trials": {
                "done": len(self.trials) - len(self.failed),
                "failed": len(self.failed),
            },
            "best": best,
        }
        store.write_bytes(json.dumps(content, indent=1).encode(), folder / SEARCH)

    def command_of(self, trial: Trial) -> str:
        """Command line that runs a trial again, on its own."""
        averaged = [f"{key}={','.join(values)}" for key, values in self.space.averaged.items()]
        several = ["-m"] if self.space.n_jobs > 1 else []
        return shlex.join([self.command, *several, *self.space.overrides(trial.values), *averaged])

    def text(self) -> str:
        """Describe the best trials in words, each with the command that repeats it."""
        n = len(self.trials)
        names = self.settings.objectives
        best = self.best
        failed = self.failed
        lines = []
        if failed:
            lines.append(
                f"{len(failed)} of {n} trials failed, trial {failed[0].number}: {one_line(failed[0].error)}"
            )
        if n < self.settings.n_trials:
            lines.append(
                f"Ended after {n} of {self.settings.n_trials} trials: nothing new was left to ask"
            )
        medians = "".join(
            f", medians over {key}={','.join(values)}"
            for key, values in self.space.averaged.items()
        )
        several = (
            f": {len(best)}, none of which is beaten by another in everything"
            if len(names) > 1
            else ""
        )
        lines.append(f"Best of {n} trials{medians}{several}" if best else "No trial has a result")
        for trial in best[:MOST_SHOWN]:
            numbers = ", ".join(
                f"{name} {value:.4g}" for name, value in zip(names, trial.objectives, strict=True)
            )
            lines += [
                f"  {numbers} (trial {trial.number})",
                f"  {self.command_of(trial)}",
            ]
        return "\n".join([*lines, *[f"  and more, see {SEARCH}"] * (len(best) > MOST_SHOWN)])


def search(sweep: Sweep, settings: Settings, space: Space) -> Search:
    """Search, as far as an earlier search in the folder has not; also what was found before an
    interrupt is told.

    Raises
    ------
    ValueError, OSError, ImportError, Refused
        As `Sweep.conduct`; also an objective that does not exist.
    """
    progress = Search(settings, space, "sysid-" + sweep.task.partition(":")[0].rpartition(".")[2])
    try:
        with sweep.opened(int(min(settings.n_trials, space.n_combinations)) * space.n_jobs):
            for corner in space.corners():
                sweep.composer.job(corner)
            while progress.batch(sweep):
                progress.write(sweep.folder)
    finally:
        if progress.trials:
            print(progress.text(), flush=True)
    return progress


def _sampler(settings: Settings) -> Any:
    """Build the sampler that is asked for, with the seed if it takes one.

    Left to itself: TPE that models all parameters together. On test problems of two to six
    parameters with 30 and 100 trials it was the best of those tried, with one objective and with
    two; NSGA-II is random for its first 50 trials.
    """
    optuna = _optuna()
    if settings.sampler is None:
        return optuna.samplers.TPESampler(seed=settings.seed, multivariate=True, constant_liar=True)
    description = (
        {"_target_": settings.sampler}
        if isinstance(settings.sampler, str)
        else dict(settings.sampler)
    )
    found = build_one(
        {"_target_": "hydra.utils.get_class", "path": description["_target_"]}, OPTION
    )
    if "seed" in inspect.signature(found).parameters:
        description.setdefault("seed", settings.seed)
    sampler = build_one(description, OPTION)
    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise UserError(f"{OPTION}: {description['_target_']} is no sampler of Optuna")
    return sampler


def _optuna() -> Any:
    """Optuna, quiet about what is new in it."""
    try:
        import optuna
    except ImportError:
        raise ImportError('hydra/sweeper=optuna needs optuna: pip install -e ".[optuna]"') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
