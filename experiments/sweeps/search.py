"""A search: a sweep in which Optuna chooses each trial from the results of earlier trials.

The search space is read from overrides in Hydra's own notation. The state of Optuna is not stored.
The sampler is seeded, and results are reported to it in the order of the trials, independently of
when their jobs end. A resumed search therefore proposes the same trials again, whose jobs are
finished already, and goes on from there.
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
from experiments.sweeps.store import SEARCH_FILE, TRIALS_FILE, Outcome
from experiments.sweeps.sweep import Sweep, one_line
from sysid import __version__, store
from sysid.errors import UserError

TIMES_GROUP = "times"  # group of a summary that holds measured times
DIRECTIONS = ("minimize", "maximize")
SAMPLER_OPTION = "hydra.sweeper.sampler"
MAX_REPEATED_PROPOSALS = 100  # the search ends after this many known trials proposed in a row
MAX_SHOWN_TRIALS = 10  # trials of a Pareto set on the terminal
LOG_TAG = "log"  # tag of an interval that is searched on a logarithmic scale
#: significant digits of a number from an interval, relative to the width of the interval or, on a
#: logarithmic scale, to the number
N_DIGITS = 6

Values = tuple[tuple[str, Any], ...]  # key and value of each parameter, in their order


# --- settings and search space


@dataclass
class Settings:
    """Settings of a search, as in conf/hydra/sweeper/optuna.yaml.

    A single name may be given instead of a list of names.

    Raises
    ------
    ValueError
        If a setting has a value that is not allowed.
    """

    n_trials: int = 30
    n_jobs: int = 1  # trials that are run at a time; this also changes which trials are proposed
    seed: int = 0  # seed of the sampler
    objectives: Any = ("smse",)  # names of numbers in the summary of a job
    direction: Any = ("minimize",)  # one for each objective, or one for all
    sampler: Any = None  # class of the sampler and its settings; None: TPE
    average_over: Any = ("seed",)  # swept keys of which every trial runs all values

    def __post_init__(self) -> None:
        for option, least in {"n_trials": 1, "n_jobs": 1, "seed": 0}.items():
            whole(f"hydra.sweeper.{option}", getattr(self, option), least)
        for option in ("objectives", "direction", "average_over"):
            setattr(self, option, self._read_names(option))
        self._check_objectives()
        n_objectives = len(self.objectives)
        if len(self.direction) == 1:
            self.direction = self.direction * n_objectives
        has_unknown = any(direction not in DIRECTIONS for direction in self.direction)
        if len(self.direction) != n_objectives or has_unknown:
            raise UserError(
                f"hydra.sweeper.direction must be one of {', '.join(DIRECTIONS)} for all "
                f"objectives, or one for each of {list(self.objectives)}, "
                f"got {list(self.direction)}"
            )
        is_class = self.sampler is None or isinstance(self.sampler, str)
        if not is_class and "_target_" not in self.sampler:
            raise UserError(
                f"{SAMPLER_OPTION} must be null, a class, or {{_target_: ..., ...}}, "
                f"got {self.sampler!r}"
            )

    def _read_names(self, option: str) -> tuple[str, ...]:
        """Return an option that is a name or a list of names as a tuple."""
        value = getattr(self, option) or []
        names = [value] if isinstance(value, str) else value
        is_list = isinstance(names, list | tuple)
        if not is_list or not all(isinstance(name, str) for name in names):
            raise UserError(
                f"hydra.sweeper.{option} must be a name or a list of names, got {value!r}"
            )
        return tuple(names)

    def _check_objectives(self) -> None:
        """Raise ValueError unless the objectives are different numbers of a summary."""
        names = self.objectives
        if not names or len(set(names)) < len(names):
            raise UserError(
                "hydra.sweeper.objectives must name one or more numbers, none twice, "
                f"got {list(names)}"
            )
        unknown = [name for name in names if "." not in name and name not in SUMMARY_NUMBERS]
        if unknown:
            known = {*SUMMARY_NUMBERS, *(f"{TIMES_GROUP}.{part}" for part in SUMMARY_TIMES)}
            raise UserError(
                f"hydra.sweeper.objectives: no number {unknown[0]!r} in a summary"
                f"{meant(unknown[0], known)}"
            )


@dataclass(frozen=True)
class Parameter:
    """A key of the configuration whose value a sampler chooses."""

    key: str  # as on the command line, with a plus if there is one
    distribution: Any  # Optuna's distribution: an interval, a range, or values without an order

    def value(self, chosen: Any) -> Any:
        """Return the value of the key for the value that Optuna has chosen.

        A real number is rounded to a few digits, so that a command line can repeat it exactly.
        """
        if not isinstance(chosen, float):
            return chosen
        low = self.distribution.low
        high = self.distribution.high
        width = self.distribution.step or high - low
        scale = abs(chosen) if self.distribution.log else width
        n_decimals = N_DIGITS - 1 - math.floor(math.log10(scale))
        within_bounds = min(max(round(chosen, n_decimals), low), high)
        return within_bounds + 0.0  # replaces -0.0 by 0.0

    @property
    def extremes(self) -> Sequence[Any]:
        """All choices, or the ends of an interval: values that are checked before the first job."""
        choices = getattr(self.distribution, "choices", None)
        return choices or [self.distribution.low, self.distribution.high]

    @property
    def n_values(self) -> float:
        """Number of different values; infinite for an interval of real numbers."""
        choices = getattr(self.distribution, "choices", None)
        if choices:
            return len(choices)
        step = self.distribution.step
        if step is None:
            return math.inf
        return round((self.distribution.high - self.distribution.low) / step) + 1


@dataclass
class Space:
    """The search space: fixed overrides, searched parameters, and values to average over."""

    fixed: tuple[str, ...]  # overrides that all trials have
    parameters: tuple[Parameter, ...]
    averaged: Mapping[str, tuple[str, ...]]  # values that every trial runs, by key

    def __post_init__(self) -> None:
        #: all keys whose values differ between jobs
        self.swept = (*(parameter.key for parameter in self.parameters), *self.averaged)
        #: number of jobs of a trial
        self.n_jobs = math.prod(len(values) for values in self.averaged.values())
        #: number of different trials
        self.n_combinations = math.prod(parameter.n_values for parameter in self.parameters)

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides of a trial, without the keys that it averages over."""
        return [*self.fixed, *(f"{key}={value}" for key, value in values.items())]

    def jobs(self, values: Mapping[str, Any]) -> list[list[str]]:
        """Return the overrides of each job of a trial."""
        groups = [[f"{key}={value}" for value in options] for key, options in self.averaged.items()]
        return [
            [*self.overrides(values), *combination] for combination in itertools.product(*groups)
        ]

    def corners(self) -> Iterator[list[str]]:
        """Yield the overrides of jobs in which each parameter in turn takes its extreme values.

        The other parameters have their first value.
        """
        first = {parameter.key: parameter.extremes[0] for parameter in self.parameters}
        yield from self.jobs(first)
        for parameter in self.parameters:
            for value in parameter.extremes[1:]:
                yield self.jobs(first | {parameter.key: value})[0]


def space_of(lines: Sequence[str], average_over: Collection[str], loader: ConfigLoader) -> Space:
    """Read the search space from overrides. A later override replaces one of the same key.

    Raises
    ------
    ValueError
        If an override cannot be read, nothing is left to search, a range or an interval is empty or
        has only one value, an interval is given for options, or an interval is averaged over.
    ImportError
        If Optuna is not installed.
    """
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(lines))
        last = {item.get_key_element(): item for item in overrides if not item.is_hydra_override()}
        fixed = [str(item.input_line) for item in last.values() if not item.is_sweep_override()]
        swept = [item for item in last.values() if item.is_sweep_override()]
        averaged = {
            item.get_key_element(): _listed_values(item)
            for item in swept
            if item.key_or_group in average_over
        }
        parameters = [
            _read_parameter(item, loader) for item in swept if item.key_or_group not in average_over
        ]
    except HydraException as error:
        raise UserError(" ".join(str(error).split())) from None
    swept_keys = {item.key_or_group for item in swept}
    for key in average_over:
        if key not in swept_keys and key != "seed":
            raise UserError(
                f"hydra.sweeper.average_over: {key!r} is not swept{meant(key, swept_keys)}"
            )
    if not parameters:
        message = (
            "there is nothing to search: give intervals, ranges or choices, "
            "such as insertion.error_threshold=interval(0.03,0.5)"
        )
        if averaged:
            message += f"; {', '.join(averaged)} is averaged over (hydra.sweeper.average_over)"
        raise UserError(message)
    return Space(tuple(fixed), tuple(parameters), averaged)


def _read_parameter(override: Override, loader: ConfigLoader) -> Parameter:
    """Read a parameter from an override with an interval, a range, or choices."""
    sweep = override.value()
    line = override.input_line
    group = override.key_or_group
    options = loader.get_group_options(group)
    if options and not override.is_choice_sweep():
        raise UserError(
            f"{line}: {group} is chosen by name and not by a number: give "
            f"{group}=choice({','.join(options[:2])}), for example, out of {', '.join(options)}"
        )
    tags: set[str] = getattr(sweep, "tags", set())
    allowed_tags = {LOG_TAG} if isinstance(sweep, IntervalSweep) else set()
    not_allowed = tags - allowed_tags
    if not_allowed:
        raise UserError(
            f"{line}: the tag {', '.join(not_allowed)} means nothing here; "
            f"only an interval can have a tag, {LOG_TAG}"
        )
    key = override.get_key_element()
    if isinstance(sweep, IntervalSweep):
        low = sweep.start or 0
        high = sweep.end or 0
        is_log = LOG_TAG in tags
        _check_interval(low, high, is_log, line)
        return Parameter(key, _number_distribution(low, high, is_log, None))
    if isinstance(sweep, RangeSweep):
        numbers: Any = sweep.range()
        if not isinstance(numbers, range):  # a range of integers may be too long for a list
            numbers = list(numbers)
        low, high = _ends(numbers, line)
        return Parameter(key, _number_distribution(low, high, False, abs(sweep.step)))
    values = _listed_values(override)
    _ends(values, line)  # raises an error if there is only one value
    return Parameter(key, _optuna().distributions.CategoricalDistribution(values))


def _check_interval(low: float, high: float, is_log: bool, line: str | None) -> None:
    """Raise ValueError unless the ends of an interval are finite and in ascending order."""
    is_ascending = math.isfinite(low) and math.isfinite(high) and low < high
    if not is_ascending or (is_log and low <= 0):
        raise UserError(
            f"{line}: an interval needs two finite numbers, the lower one first, "
            f"both positive with the tag {LOG_TAG}"
        )


def _number_distribution(low: Any, high: Any, is_log: bool, step: Any) -> Any:
    """Return Optuna's distribution of the integers or real numbers from `low` to `high`."""
    distributions = _optuna().distributions
    if isinstance(low, int) and isinstance(high, int):
        return distributions.IntDistribution(low, high, log=is_log, step=step or 1)
    return distributions.FloatDistribution(low, high, log=is_log, step=step)


def _ends(values: Sequence[Any], line: str | None) -> list[Any]:
    """Return the smallest and the largest of at least two sorted values."""
    if not values:
        raise UserError(f"{line} sweeps over nothing: the range is empty")
    if len(values) == 1:
        raise UserError(
            f"{line} leaves nothing to choose: give {str(line).partition('=')[0]}={values[0]}"
        )
    return sorted((values[0], values[-1]))


def _listed_values(override: Override) -> tuple[str, ...]:
    """Return the different values of an override as texts, as on the command line."""
    if override.is_interval_sweep():
        raise UserError(
            f"{override.input_line} is averaged over (hydra.sweeper.average_over): list its values"
        )
    values = tuple(dict.fromkeys(override.sweep_string_iterator()))
    if not values:
        raise UserError(f"{override.input_line} sweeps over nothing: the range is empty")
    return values


# --- trials and their results


class Trial(NamedTuple):
    """One point of the search space, and its result."""

    number: int
    values: dict[str, Any]  # values of the parameters, by key
    jobs: tuple[int, ...]  # numbers of its jobs, which name their folders
    objectives: tuple[float, ...] = ()  # empty if the trial has failed
    error: str = ""  # reason of the failure


def score_trial(
    trial: Trial, outcomes: Sequence[Outcome], folder: Path, names: Sequence[str]
) -> Trial:
    """Return the trial with the median of each objective over its jobs.

    The trial has failed if a job has failed or has no number for an objective.

    Raises
    ------
    ValueError
        If summaries have no number of this name; the message names the nearest one.
    sysid.StoreError
        If the result of a finished job cannot be read.
    """
    for outcome in outcomes:
        if not outcome.done:
            return trial._replace(error=f"job {outcome.number}: {outcome.error}")
    rows = []
    for job in trial.jobs:
        summary = read_summary(folder / str(job) / JOB_FILE)
        row = [objective(summary, name) for name in names]
        if None in row:
            missing = names[row.index(None)]
            return trial._replace(
                error=f"job {job} has no {missing}: its summary holds no number there"
            )
        rows.append(row)
    columns: Any = zip(*rows, strict=True)
    return trial._replace(objectives=tuple(statistics.median(column) for column in columns))


def objective(summary: Mapping[str, Any], name: str) -> float | None:
    """Look up a number of a summary by its name, such as "smse" or "times.loop".

    Return None if the summary has this name, but no finite number there.

    Raises
    ------
    ValueError
        If the summary does not have this name.

    >>> objective({"smse": 0.5, "times": {"loop": 2.0}, "free_run": None}, "times.loop")
    2.0
    >>> objective({"free_run": None}, "free_run.rmse") is None
    True
    """
    value: Any = summary
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise _unknown_objective(summary, name)
        value = value[key]
        if value is None:
            return None
    if not isinstance(value, int | float):
        raise _unknown_objective(summary, name)
    return float(value) if math.isfinite(value) else None


def _unknown_objective(summary: Mapping[str, Any], name: str) -> UserError:
    """Return the error that a summary has no number of this name; it proposes the nearest name."""
    row = pd.json_normalize(dict(summary)).iloc[0].to_dict()
    numbers = [
        key for key, value in row.items() if isinstance(value, int | float) and not pd.isna(value)
    ]
    return UserError(
        f"hydra.sweeper.objectives: no number {name!r} in the summary of a job"
        f"{meant(name, numbers)}"
    )


class Search:
    """The state of a search: Optuna's study and all trials so far, which are all different.

    Parameters
    ----------
    settings : Settings
    space : Space
    command : str
        Name of the command as typed, such as "sysid-identify".

    Raises
    ------
    ImportError
        If Optuna is not installed.
    ValueError
        If the sampler does not exist or refuses its settings.
    """

    def __init__(self, settings: Settings, space: Space, command: str) -> None:
        self.settings = settings
        self.space = space
        self.command = command
        self.trials: dict[Values, Trial] = {}  # trials by their values, in their order
        self._study = _optuna().create_study(
            sampler=_sampler(settings), directions=list(settings.direction)
        )

    @property
    def failed(self) -> list[Trial]:
        """Trials that have failed."""
        return [trial for trial in self.trials.values() if trial.error]

    @property
    def best(self) -> list[Trial]:
        """The best trial, or with several objectives the Pareto set.

        No trial is better than one of the Pareto set in an objective and at least equal in the
        others.
        """
        numbers = {
            self.trials[self._values(study_trial.params)].number
            for study_trial in self._study.best_trials
        }
        best = [trial for trial in self.trials.values() if trial.number in numbers]
        return best if len(self.settings.objectives) > 1 else best[:1]

    def batch(self, sweep: Sweep) -> bool:
        """Let the sampler propose some trials, run them side by side, and report their results.

        Return False if there is no new trial.
        """
        n_trials = min(self.settings.n_jobs, self.settings.n_trials - len(self.trials))
        with self._sampler_errors():
            proposals = self._propose(n_trials)
        jobs_of_trials = {values: self.space.jobs(dict(values)) for _, values in proposals}
        all_jobs = list(itertools.chain.from_iterable(jobs_of_trials.values()))
        outcomes: Iterator[Outcome] = iter(())
        if all_jobs:
            outcomes = iter(sweep.run(all_jobs))
        for values, jobs in jobs_of_trials.items():
            outcomes_of_trial = list(itertools.islice(outcomes, len(jobs)))
            job_numbers = tuple(outcome.number for outcome in outcomes_of_trial)
            trial = Trial(len(self.trials), dict(values), job_numbers)
            names = self.settings.objectives
            self.trials[values] = score_trial(trial, outcomes_of_trial, sweep.folder, names)
        with self._sampler_errors():
            for number, values in proposals:
                self._report(number, self.trials[values])
        return bool(proposals)

    @contextmanager
    def _sampler_errors(self) -> Iterator[None]:
        """Turn an error of the sampler into a ValueError about the settings."""
        try:
            yield
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise UserError(
                f"{SAMPLER_OPTION}: {type(self._study.sampler).__name__} cannot search this space "
                f"({error}); to run all combinations instead, use hydra/sweeper=grid"
            ) from error

    def _propose(self, n_trials: int) -> list[tuple[int, Values]]:
        """Let the sampler propose new trials.

        Results of known trials that it proposes again are reported to it at once.

        Returns
        -------
        list of tuple
            The number of each proposal in Optuna's study, and its values. Several proposals may
            have the same values.
        """
        numbers_by_values: dict[Values, list[int]] = {}
        distributions = {
            parameter.key: parameter.distribution for parameter in self.space.parameters
        }
        n_new = min(n_trials, self.space.n_combinations - len(self.trials))
        n_repeats = 0
        while len(numbers_by_values) < n_new and n_repeats < MAX_REPEATED_PROPOSALS:
            proposal = self._study.ask(distributions)
            values = self._values(proposal.params)
            is_repeat = values in self.trials or values in numbers_by_values
            n_repeats = n_repeats + 1 if is_repeat else 0
            if values in self.trials:
                self._report(proposal.number, self.trials[values])
            else:
                numbers_by_values.setdefault(values, []).append(proposal.number)
        return sorted(
            (number, values) for values, numbers in numbers_by_values.items() for number in numbers
        )

    def _report(self, number: int, trial: Trial) -> None:
        """Report the result of a trial to the sampler, for the proposal with this number."""
        states = _optuna().trial.TrialState
        state = states.FAIL if trial.error else states.COMPLETE
        self._study.tell(number, trial.objectives or None, state)

    def _values(self, chosen: Mapping[str, Any]) -> Values:
        """Return the values of all parameters for those that the sampler has chosen."""
        return tuple(
            (parameter.key, parameter.value(chosen[parameter.key]))
            for parameter in self.space.parameters
        )

    def write(self, folder: Path) -> None:
        """Write the table of all trials and the file of the best, each completely or not at all.

        Raises
        ------
        sysid.StoreError
            If the disk is full or the folder is read-only.
        """
        rows = [self._row(trial) for trial in self.trials.values()]
        table = to_csv(pd.DataFrame(rows, dtype=object))
        store.write_bytes(table.encode(), folder / TRIALS_FILE)
        store.write_bytes(json.dumps(self._content(), indent=1).encode(), folder / SEARCH_FILE)

    def _row(self, trial: Trial) -> dict[str, Any]:
        """Return the row of a trial in the table; a failed trial has empty objectives."""
        names = self.settings.objectives
        objectives = trial.objectives or [None] * len(names)
        return {
            "trial": trial.number,
            "state": "failed" if trial.error else "done",
            **trial.values,
            **dict(zip(names, objectives, strict=True)),
            "jobs": " ".join(map(str, trial.jobs)),
            "error": " ".join(trial.error.split()),
        }

    def _content(self) -> dict[str, Any]:
        """Return the content of the file of the best trials."""
        names = self.settings.objectives
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
        # Measured times differ from run to run, so that another search proposes other trials.
        uses_times = any(TIMES_GROUP in name.split(".") for name in names)
        return {
            "version": __version__,
            "code": code_digest(),
            "optuna": version("optuna"),
            "sampler": type(self._study.sampler).__name__,
            "settings": vars(self.settings) | {"average_over": dict(self.space.averaged)},
            "repeatable": not uses_times,
            "n_trials": {
                "done": len(self.trials) - len(self.failed),
                "failed": len(self.failed),
            },
            "best": best,
        }

    def command_of(self, trial: Trial) -> str:
        """Return the command line that runs a trial again, on its own."""
        words = [self.command]
        if self.space.n_jobs > 1:
            words.append("-m")
        words += self.space.overrides(trial.values)
        for key, values in self.space.averaged.items():
            words.append(f"{key}={','.join(values)}")
        return shlex.join(words)

    def text(self) -> str:
        """Describe the best trials in words, each with the command that repeats it."""
        n = len(self.trials)
        names = self.settings.objectives
        best = self.best
        failed = self.failed
        lines = []
        if failed:
            lines.append(
                f"{len(failed)} of {n} trials failed, "
                f"the first is trial {failed[0].number}: {one_line(failed[0].error)}"
            )
        if n < self.settings.n_trials:
            lines.append(
                f"Ended after {n} of {self.settings.n_trials} trials: "
                "the sampler proposed no new trial"
            )
        if not best:
            lines.append("No trial has a result")
            return "\n".join(lines)
        title = f"Best of {n} trials"
        for key, values in self.space.averaged.items():
            title += f", medians over {key}={','.join(values)}"
        if len(names) > 1:
            title += f": {len(best)}, none of which is beaten by another in all objectives"
        lines.append(title)
        for trial in best[:MAX_SHOWN_TRIALS]:
            numbers = ", ".join(
                f"{name} {value:.4g}" for name, value in zip(names, trial.objectives, strict=True)
            )
            lines.append(f"  {numbers} (trial {trial.number})")
            lines.append(f"  {self.command_of(trial)}")
        if len(best) > MAX_SHOWN_TRIALS:
            lines.append(f"  and more, see {SEARCH_FILE}")
        return "\n".join(lines)


def search(sweep: Sweep, settings: Settings, space: Space) -> Search:
    """Search, or continue an earlier search in the folder of the sweep.

    After an interrupt, the best trials so far are printed as well.

    Raises
    ------
    ValueError, OSError, ImportError, Refused
        As `Sweep.conduct`; also if an objective does not exist.
    """
    module, _, _ = sweep.task.partition(":")
    command = f"sysid-{module.rpartition('.')[2]}"
    progress = Search(settings, space, command)
    n_trials = int(min(settings.n_trials, space.n_combinations))
    try:
        with sweep.opened(n_trials * space.n_jobs):
            for corner in space.corners():
                sweep.composer.job(corner)
            while progress.batch(sweep):
                progress.write(sweep.folder)
    finally:
        if progress.trials:
            print(progress.text(), flush=True)
    return progress


def _sampler(settings: Settings) -> Any:
    """Build the sampler of the settings, with the seed if it takes one.

    The default is TPE that models all parameters together. On test problems of two to six
    parameters with 30 and 100 trials, it was the best of the samplers that were tried, with one
    objective and with two. NSGA-II is random for its first 50 trials.
    """
    optuna = _optuna()
    if settings.sampler is None:
        return optuna.samplers.TPESampler(seed=settings.seed, multivariate=True, constant_liar=True)
    sampler = settings.sampler
    description = {"_target_": sampler} if isinstance(sampler, str) else dict(sampler)
    get_class = {"_target_": "hydra.utils.get_class", "path": description["_target_"]}
    sampler_class = build_one(get_class, SAMPLER_OPTION)
    if "seed" in inspect.signature(sampler_class).parameters:
        description.setdefault("seed", settings.seed)
    sampler = build_one(description, SAMPLER_OPTION)
    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise UserError(f"{SAMPLER_OPTION}: {description['_target_']} is no sampler of Optuna")
    return sampler


def _optuna() -> Any:
    """Import Optuna, without its warnings about experimental features."""
    try:
        import optuna
    except ImportError:
        raise ImportError('hydra/sweeper=optuna needs optuna: pip install -e ".[optuna]"') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
