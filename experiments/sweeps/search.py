"""A sweep that searches: each trial is chosen by Optuna from the results of those before.

Nothing of Optuna is stored. The sampler is seeded and is told of trials in their order, whenever their jobs have ended.
So a search that is resumed asks for the trials that it has asked for before; their jobs are finished, and it goes on.
"""

import inspect
import json
import math
import shlex
import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from experiments.build import build_one
from experiments.job_file import FILE, NUMBERS, TIMES, read_summary
from experiments.sweeps.identity import code_digest
from experiments.sweeps.keys import meant
from experiments.sweeps.report import one_line
from experiments.sweeps.space import Space
from experiments.sweeps.store import PROJECT, SEARCH, TRIALS, VERSION, Outcome
from experiments.sweeps.sweep import Session, Sweep
from sysid import store

if TYPE_CHECKING:
    import optuna

TIME = "times"  # group of a summary whose numbers are measured times
DIRECTIONS = ("minimize", "maximize")
OPTION = "hydra.sweeper.sampler"
MOST_REPEATS = 100  # questions in a row that were answered before, until a search has nothing more to ask
MOST_SHOWN = 10  # trials of a Pareto set on the terminal

Values = tuple[Any, ...]  # of the parameters, in their order


@dataclass(frozen=True)
class Settings:
    """Settings of a search, as in conf/hydra/sweeper/optuna.yaml."""

    n_trials: int = 30
    n_jobs: int = 1  # trials at a time
    seed: int = 0  # of the sampler
    objectives: tuple[str, ...] = ("smse",)  # numbers of the summary of a job
    direction: tuple[str, ...] = ("minimize",)  # one for each objective
    sampler: Mapping[str, Any] | None = None  # with _target_; None: TPE
    average_over: tuple[str, ...] = ("seed",)  # swept keys whose values are all run in every trial

    def __post_init__(self) -> None:
        wholes = {
            "n_trials": (1, "a search of no trials finds nothing"),
            "n_jobs": (1, "trials at a time; their number decides which are asked, so it is no null"),
            "seed": (0, "of the sampler"),
        }
        for option, (least, meaning) in wholes.items():
            value = getattr(self, option)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"hydra.sweeper.{option} must be a whole number from {least} ({meaning}), got {value!r}"
                )
        if not self.objectives or len({*self.objectives}) < len(self.objectives):
            raise ValueError(
                f"hydra.sweeper.objectives must name one or more numbers of the summary of a job, none twice, such as "
                f"[smse,n_revised], got {list(self.objectives)}"
            )
        for name in self.objectives:
            if "." not in name and name not in NUMBERS:
                known = {*NUMBERS, *(f"{TIME}.{part}" for part in TIMES)}
                raise ValueError(f"hydra.sweeper.objectives: no number {name!r} in a summary{meant(name, known)}")
        if len(self.direction) != len(self.objectives) or not {*self.direction} <= {*DIRECTIONS}:
            raise ValueError(
                f"hydra.sweeper.direction must be one of {', '.join(DIRECTIONS)} for all objectives or one for each of "
                f"{list(self.objectives)}, got {list(self.direction)}"
            )

    @property
    def repeatable(self) -> bool:
        """Whether the same search in a new folder asks for the same trials: not if it goes by measured times."""
        return not any(TIME in name.split(".") for name in self.objectives)


def settings_of(*, objectives: Any, direction: Any, sampler: Any, average_over: Any, **numbers: Any) -> Settings:
    """Settings from plain values, where a single one may stand for a list of one.

    Raises
    ------
    ValueError
        Settings that make no sense.
    """
    named, directions = _texts("objectives", objectives), _texts("direction", direction)
    if isinstance(sampler, str):
        sampler = {"_target_": sampler}
    if sampler is not None and not (isinstance(sampler, Mapping) and "_target_" in sampler):
        raise ValueError(
            f"{OPTION} must be null, a class such as optuna.samplers.RandomSampler, or "
            f"{{_target_: ..., ...}} with its settings, got {sampler!r}"
        )
    return Settings(
        objectives=named,
        direction=directions * len(named) if len(directions) == 1 else directions,
        sampler=sampler,
        average_over=_texts("average_over", average_over or []),
        **numbers,
    )


def _texts(option: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"hydra.sweeper.{option} must be a name or a list of names, got {value!r}")
    return tuple(values)


class Trial(NamedTuple):
    """One point of a search, and how good it is."""

    number: int
    values: dict[str, Any]  # of the parameters, by key
    jobs: tuple[int, ...]  # numbers of their folders
    objectives: tuple[float, ...] = ()  # empty if the trial has failed
    error: str = ""  # why it has failed


def judge(trial: Trial, outcomes: Sequence[Outcome], folder: Path, names: Sequence[str]) -> Trial:
    """The trial with the median of each objective over its jobs; failed if one of them has none.

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
    summaries = [read_summary(folder / str(job) / FILE) for job in trial.jobs]
    objectives = []
    for name in names:
        numbers = {job: objective(summary, name) for job, summary in zip(trial.jobs, summaries, strict=True)}
        known = [value for value in numbers.values() if value is not None]
        if len(known) < len(numbers):
            job = next(job for job, value in numbers.items() if value is None)
            return trial._replace(error=f"job {job} has no {name}: its summary holds no number there")
        objectives.append(statistics.median(known))
    return trial._replace(objectives=tuple(objectives))


def objective(summary: Mapping[str, Any], name: str) -> float | None:
    """Number of a summary by its name, "smse" or "times.loop"; None if a run like this one has none there.

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
    numbers = [key for key, value in row.items() if isinstance(value, int | float) and not pd.isna(value)]
    raise ValueError(f"hydra.sweeper.objectives: no number {name!r} in the summary of a job{meant(name, numbers)}")


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
        try:
            import optuna
        except ImportError:
            raise ImportError("hydra/sweeper=optuna needs optuna: pip install 'sysid[optuna]'") from None
        self.settings, self.space, self.command = settings, space, command
        self.trials: dict[Values, Trial] = {}  # by the values of the parameters, in order
        self._asked: dict[int, optuna.trial.Trial] = {}
        self._answers: dict[int, Trial] = {}  # by the number of the question
        with _quiet():
            sampler = _sampler(settings)
            directions: list[Any] = list(settings.direction)
            self._study = optuna.create_study(sampler=sampler, directions=directions)
            self._distributions = {parameter.key: parameter.distribution() for parameter in space.parameters}

    @property
    def failed(self) -> list[Trial]:
        """Trials without objectives."""
        return [trial for trial in self.trials.values() if trial.error]

    @property
    def best(self) -> list[Trial]:
        """The best trial, or all than which none is better in one objective and as good in the others."""
        with _quiet():
            questions = [trial.number for trial in self._study.best_trials]
        found = {self._answers[number].number: self._answers[number] for number in questions}
        best = [found[number] for number in sorted(found)]
        return best if len(self.settings.objectives) > 1 else best[:1]

    def batch(self, session: Session) -> bool:
        """Ask for some trials, run them side by side, tell what became of them; False if there is nothing to ask."""
        asked = self._ask(min(self.settings.n_jobs, self.settings.n_trials - len(self.trials)))
        jobs = {values: self.space.jobs(self._by_key(values)) for values in asked}
        outcomes = iter(session.run([job for own in jobs.values() for job in own])) if jobs else iter(())
        for values, own in jobs.items():
            ended = list(islice(outcomes, len(own)))
            trial = Trial(len(self.trials), self._by_key(values), tuple(outcome.number for outcome in ended))
            self.trials[values] = judge(trial, ended, session.sweep.folder, self.settings.objectives)
            session.report.log(f"trial {trial.number}: {self.trials[values].error or self.trials[values].objectives}")
        answers = {question: self.trials[values] for values, questions in asked.items() for question in questions}
        for question in sorted(answers):
            self._tell(question, answers[question])
        return bool(asked)

    def _ask(self, n_trials: int) -> dict[Values, list[int]]:
        """Ask for new trials: their values, and the questions that they answer; old ones are answered at once."""
        asked: dict[Values, list[int]] = {}
        repeats = 0
        while len(asked) < min(n_trials, self.space.n_combinations - len(self.trials)) and repeats < MOST_REPEATS:
            with self._understood():
                question = self._study.ask(self._distributions)
            self._asked[question.number] = question
            values = tuple(self.space.values(question.params).values())
            if values in self.trials:
                self._tell(question.number, self.trials[values])
            else:
                repeats = repeats if values in asked else -1
                asked.setdefault(values, []).append(question.number)
            repeats += 1
        return asked

    def _tell(self, question: int, trial: Trial) -> None:
        from optuna.trial import TrialState

        with self._understood():
            state = TrialState.FAIL if trial.error else TrialState.COMPLETE
            self._study.tell(self._asked.pop(question), trial.objectives or None, state)
        self._answers[question] = trial

    def _by_key(self, values: Values) -> dict[str, Any]:
        return dict(zip((parameter.key for parameter in self.space.parameters), values, strict=True))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Quiet, and what the sampler does not take is told as a mistake of the settings."""
        try:
            with _quiet():
                yield
        except (TypeError, RuntimeError, NotImplementedError) as error:
            sampler = type(self._study.sampler).__name__
            raise ValueError(
                f"{OPTION}: {sampler} cannot search here ({error}); all combinations: hydra/sweeper=grid"
            ) from error

    def note(self) -> str:
        """The best in a few words."""
        best, names = self.best, self.settings.objectives
        if not best:
            return ""
        return f"{len(best)} unbeaten" if len(names) > 1 else f"best {names[0]} {best[0].objectives[0]:.4g}"

    def write(self, folder: Path) -> None:
        """Write the table of all trials and a file of the best, each complete or not at all.

        Raises
        ------
        sysid.StoreError
            Full disk, read-only folder.
        """
        store.write_bytes(self.table().to_csv(index=False, lineterminator="\n").encode(), folder / TRIALS)
        store.write_bytes(json.dumps(self.content(), indent=1).encode(), folder / SEARCH)

    def table(self) -> pd.DataFrame:
        """All trials as texts: state, parameters, objectives, numbers of the jobs, error."""
        names = self.settings.objectives
        rows = [
            {
                "trial": trial.number,
                "state": "failed" if trial.error else "done",
                **trial.values,
                **dict(zip(names, map(repr, trial.objectives) if trial.objectives else [""] * len(names), strict=True)),
                "jobs": " ".join(map(str, trial.jobs)),
                "error": " ".join(trial.error.split()),
            }
            for trial in self.trials.values()
        ]
        return pd.DataFrame(rows, dtype=object)

    def content(self) -> dict[str, Any]:
        """The best trials and what was asked for, as plain data."""
        settings, space = self.settings, self.space
        asked = {name: getattr(settings, name) for name in ("n_trials", "n_jobs", "seed", "objectives", "direction")}
        best = [
            {
                "trial": trial.number,
                "parameters": trial.values,
                "objectives": dict(zip(settings.objectives, trial.objectives, strict=True)),
                "jobs": trial.jobs,
                "command": self.command_of(trial),
            }
            for trial in self.best
        ]
        return {
            "schema": "search",
            "schema_version": VERSION,
            "project": PROJECT,
            "version": version(PROJECT),
            "code": code_digest(),
            "optuna": version("optuna"),
            "sampler": type(self._study.sampler).__name__,
            "settings": asked | {"sampler": settings.sampler, "average_over": dict(space.averaged)},
            "repeatable": settings.repeatable,
            "fixed": space.fixed,
            "parameters": [parameter.key for parameter in space.parameters],
            "n_trials": {"done": len(self.trials) - len(self.failed), "failed": len(self.failed)},
            "best": best,
        }

    def command_of(self, trial: Trial) -> str:
        """Command line that runs a trial again, on its own."""
        averaged = [f"{key}={','.join(values)}" for key, values in self.space.averaged.items()]
        several = ["-m"] if self.space.n_jobs > 1 else []
        return shlex.join([self.command, *several, *self.space.overrides(trial.values), *averaged])

    def text(self) -> str:
        """The best trials in words, each with the command that repeats it."""
        n, names, best, failed = len(self.trials), self.settings.objectives, self.best, self.failed
        lines = []
        if failed:
            why = one_line(failed[0].error)
            lines.append(f"{len(failed)} of {n} trials failed, trial {failed[0].number} for one: {why}")
        if n == self.space.n_combinations:
            lines.append(f"All {n} combinations were tried")
        elif n < self.settings.n_trials:
            lines.append(f"Ended after {n} of {self.settings.n_trials} trials")
        if not best:
            return "\n".join([*lines, "No trial has a result"])
        median = "".join(f", medians over {key}={','.join(values)}" for key, values in self.space.averaged.items())
        lines.append(f"Best of {n} trials{median}: ")
        if len(names) > 1:
            lines[-1] += f"{len(best)}, none of which is beaten by another in everything"
        for trial in best[:MOST_SHOWN]:
            numbers = ", ".join(f"{name} {value:.4g}" for name, value in zip(names, trial.objectives, strict=True))
            jobs = f"job{'s' if len(trial.jobs) > 1 else ''} {' '.join(map(str, trial.jobs))}"
            described = f"{numbers} (trial {trial.number}, {jobs})"
            if len(names) > 1:
                lines.append(f"  {described}")
            else:
                lines[-1] += described
            lines.append(f"  {self.command_of(trial)}")
        if len(best) > MOST_SHOWN:
            lines.append(f"  and {len(best) - MOST_SHOWN} more, see {SEARCH}")
        return "\n".join(lines)


def search(sweep: Sweep, settings: Settings, space: Space) -> Search:
    """Search, as far as an earlier search in the folder has not; also what was found before an interrupt is told.

    Raises
    ------
    ValueError, OSError, ImportError, Ended
        As `Sweep.conduct`; also an objective that does not exist.
    """
    progress = Search(settings, space, "sysid-" + sweep.task.partition(":")[0].rpartition(".")[2])
    try:
        with sweep.opened(int(min(settings.n_trials, space.n_combinations)) * space.n_jobs) as session:
            for corner in space.corners():
                session.composer.job(corner)
            while progress.batch(session):
                progress.write(sweep.folder)
                session.report.note(progress.note())
    finally:
        if progress.trials:
            print(progress.text(), flush=True)
    return progress


def _sampler(settings: Settings) -> "optuna.samplers.BaseSampler":
    """The sampler that is asked for, with the seed if it takes one.

    Left to itself: TPE that models all parameters together. On test problems of two to six parameters with 30 and 100
    trials it was the best of those tried, with one objective and with two; NSGA-II is random for its first 50 trials.
    """
    import optuna

    if settings.sampler is None:
        return optuna.samplers.TPESampler(seed=settings.seed, multivariate=True, constant_liar=True)
    description = dict(settings.sampler)
    found = build_one({"_target_": "hydra.utils.get_class", "path": description["_target_"]}, OPTION)
    if "seed" in inspect.signature(found).parameters:
        description.setdefault("seed", settings.seed)
    sampler = build_one(description, OPTION)
    if not isinstance(sampler, optuna.samplers.BaseSampler):
        raise ValueError(f"{OPTION}: {description['_target_']} is no sampler of Optuna")
    return sampler


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log and its warnings that something is new."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
