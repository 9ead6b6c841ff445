"""Validation of a model right after its identification, on the test records that it has not seen."""

import logging
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from experiments.build import build
from experiments.sources import Source
from experiments.validation.assessment import assess
from experiments.validation.material import recorded_material
from experiments.validation.options import Options
from experiments.validation.report import Report, report_of
from sysid import JointModel, Model

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Trial:
    """A validation, or the reason why there is none."""

    report: Report | None = None
    reason: str = ""

    @property
    def notes(self) -> list[str]:
        """What a person should know."""
        if self.report is not None:
            return self.report.warnings
        return [f"not validated in free run: {self.reason}"] if self.reason else []


NO_TRIAL = Trial()


def trial_of(config: DictConfig, source: Source, model: Model | JointModel | None) -> Trial:
    """One step and free run on the test records of a source; nothing for simulations, tables, or without a test.

    What does not fit is told and not raised: the identification has succeeded.
    """
    recordings = source.recordings()
    if not config.validate or model is None or recordings is None or recordings.is_static:
        return NO_TRIAL
    if not (recordings.test or recordings.validation):
        return NO_TRIAL
    if isinstance(model, Model) and len(model.narx.output_names) > 1:
        others = [name for name in model.narx.output_names if name != model.narx.target]
        return Trial(reason=f"{others} are outputs among the regressors without a model; take narx.target=all")
    try:
        joint, material = JointModel.of(model), recorded_material(recordings, None)
        options = Options(horizons=(1,), seed=config.seed, figures=config.figures)
        return Trial(report_of(assess(joint, material, options, build(config, "propagation"))))
    except ValueError as error:
        return Trial(reason=str(error))


def tell_free_run(found: dict[str, Any]) -> None:
    """Log the measures of a free run in a line; None stands for what does not exist."""
    start = f"Free run on the test after {found['window']} samples"
    if found["rmse"] is None:
        log.info("%s: diverges", start)
        return
    fit = "-" if found["fit_percent"] is None else f"{found['fit_percent']:.1f} %"
    covered = "-" if found["coverage_95"] is None else f"{100 * found['coverage_95']:.1f} %"
    error = f"{found['rmse']:.4g} {found['unit']}".removesuffix(" 1").rstrip()
    log.info("%s: RMSE %s, fit %s, 95 %% band covers %s", start, error, fit, covered)
