"""Optuna's part: which trial is asked for next, and which are the best."""

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experiments.build import build_one
from experiments.sweep.search.parameter import Parameter
from experiments.sweep.search.settings import Settings
from experiments.sweep.search.trial import Trial

if TYPE_CHECKING:
    import optuna

OPTION = "hydra.sweeper.sampler"


class Study:
    """Asks for trials and is told what became of them; the same answers lead to the same questions.

    Nothing is stored: a search that is resumed asks for the same trials, whose jobs are finished.

    Raises
    ------
    ImportError
        Without Optuna.
    ValueError
        A sampler that there is not, or that refuses its settings.
    """

    def __init__(self, settings: Settings, parameters: Sequence[Parameter]) -> None:
        try:
            import optuna
        except ImportError:
            raise ImportError("hydra/sweeper=optuna needs optuna: pip install 'sysid[optuna]'") from None
        self.version = str(optuna.__version__)
        self._failed = optuna.trial.TrialState.FAIL
        with _quiet():
            sampler = _sampler(settings)
            self._study = optuna.create_study(
                sampler=sampler, directions=[direction.value for direction in settings.directions]
            )
            self._space = {parameter.key: parameter.distribution() for parameter in parameters}
        self.sampler = type(sampler).__name__
        self._asked: dict[int, optuna.trial.Trial] = {}
        self._answers: dict[int, Trial] = {}

    def ask(self) -> tuple[int, Mapping[str, Any]]:
        """What to try next: the number of the question, and choices by key.

        Raises
        ------
        ValueError
            If the sampler does not go with the space.
        """
        with self._understood():
            asked = self._study.ask(self._space)
        self._asked[asked.number] = asked
        return asked.number, asked.params

    def tell(self, question: int, trial: Trial) -> None:
        """What became of a trial that was asked for.

        Raises
        ------
        ValueError
            From a sampler that wants to end the search, as those do that try all combinations.
        """
        with self._understood():
            if trial.done:
                self._study.tell(self._asked.pop(question), trial.objectives)
            else:
                self._study.tell(self._asked.pop(question), state=self._failed)
        self._answers[question] = trial

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Quiet, and what the sampler does not take is told as a mistake of the settings."""
        try:
            with _quiet():
                yield
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"{OPTION}: {self.sampler} cannot search here ({error}); all combinations: hydra/sweeper=grid"
            ) from error

    def best(self) -> list[Trial]:
        """The trials than which none is better in one objective and as good in the others."""
        with _quiet():
            questions = [trial.number for trial in self._study.best_trials]
        return sorted(
            {self._answers[number].number: self._answers[number] for number in questions}.values(),
            key=lambda trial: trial.number,
        )


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
