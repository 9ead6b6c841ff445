"""One search from end to end: ask for trials, run their jobs, tell what came out, until there were enough."""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from experiments.sweep.conduct import Session, Sweep
from experiments.sweep.search import result as results
from experiments.sweep.search.result import Result
from experiments.sweep.search.settings import Settings
from experiments.sweep.search.space import Space
from experiments.sweep.search.study import Study
from experiments.sweep.search.trial import Trial, judged

Values = tuple[Any, ...]  # of the parameters, in their order


MOST_REPEATS = 100  # questions in a row that were answered before, until a search has nothing more to ask


def search(sweep: Sweep, settings: Settings, space: Space) -> Result:
    """Search, as far as an earlier search in the folder has not; also what was found before an interrupt is told.

    The sampler is seeded and is told of trials in their order, whenever their jobs have ended. So a search that is
    resumed asks for the trials that it has asked for before; their jobs are finished, and it goes on from there.

    Raises
    ------
    ValueError, OSError, ImportError, Ended
        As `Sweep.conduct`; also an objective that does not exist.
    """
    progress = Search(settings, space, Study(settings, space.parameters))
    try:
        with sweep.opened(int(min(settings.n_trials, space.n_combinations)) * space.n_jobs) as session:
            for corner in space.corners():
                session.composer.job(corner)
            while progress.batch(session):
                results.write(progress.result(sweep.task), sweep.folder)
                session.report.note(progress.best_so_far())
    finally:
        if progress.trials:
            print(results.text(progress.result(sweep.task)), flush=True)
    return progress.result(sweep.task)


@dataclass
class Search:
    """A search that goes on: all trials so far, no two alike."""

    settings: Settings
    space: Space
    study: Study
    trials: dict[Values, Trial] = field(default_factory=dict)  # by the values of the parameters, in order

    def batch(self, session: Session) -> bool:
        """Ask for some trials, run them side by side, tell what became of them; False if there is nothing to ask."""
        asked = self._ask(min(self.settings.n_jobs, self.settings.n_trials - len(self.trials)))
        jobs = {values: self.space.jobs(self._by_key(values)) for values in asked}
        outcomes = iter(session.run([job for own in jobs.values() for job in own])) if jobs else iter(())
        for values, own in jobs.items():
            trial = judged(
                len(self.trials),
                self._by_key(values),
                list(islice(outcomes, len(own))),
                session.sweep.folder,
                self.settings.objectives,
            )
            self.trials[values] = trial
            session.report.log(f"trial {trial.number}: {trial.error or trial.objectives}")
        answers = {question: self.trials[values] for values, questions in asked.items() for question in questions}
        for question in sorted(answers):
            self.study.tell(question, answers[question])
        return bool(asked)

    def _ask(self, n_trials: int) -> dict[Values, list[int]]:
        """Ask for new trials: their values, and the questions that they answer; old ones are answered at once."""
        asked: dict[Values, list[int]] = {}
        repeats = 0
        while len(asked) < min(n_trials, self.space.n_combinations - len(self.trials)) and repeats < MOST_REPEATS:
            question, chosen = self.study.ask()
            values = tuple(self.space.values(chosen).values())
            if values in self.trials:
                self.study.tell(question, self.trials[values])
            else:
                repeats = repeats if values in asked else -1
                asked.setdefault(values, []).append(question)
            repeats += 1
        return asked

    def _by_key(self, values: Values) -> dict[str, Any]:
        return dict(zip((parameter.key for parameter in self.space.parameters), values, strict=True))

    def result(self, task: str) -> Result:
        """Everything found so far."""
        command = "sysid-" + task.partition(":")[0].rpartition(".")[2]
        best = self.study.best()
        if len(self.settings.objectives) == 1:
            best = best[:1]
        trials = tuple(self.trials.values())
        return Result(self.settings, self.space, command, self.study.sampler, self.study.version, trials, best)

    def best_so_far(self) -> str:
        """The best in a few words."""
        best, names = self.study.best(), self.settings.objectives
        if not best:
            return ""
        return f"{len(best)} unbeaten" if len(names) > 1 else f"best {names[0]} {best[0].objectives[0]:.4g}"
