"""All studies, in the order of the report."""

from experiments.studies.baselines.study import BaselinesStudy
from experiments.studies.calibration import Calibration
from experiments.studies.complexity import ComplexityStudy
from experiments.studies.grid import Grid
from experiments.studies.guidelines import Guidelines
from experiments.studies.preparation import Preparation
from experiments.studies.rastrigin import RastriginMaps
from experiments.studies.reduction import Reduction
from experiments.studies.study import Study, Work
from experiments.studies.table import Table2, Table3, Table4
from experiments.studies.threshold_sweep import BuildingSweep, VanDerPolSweep

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        ComplexityStudy(),
        BaselinesStudy(),
        Reduction(),
        Table2(),
        RastriginMaps(),
        Table3(),
        Table4(),
        VanDerPolSweep(),
        BuildingSweep(),
        Grid(),
        Guidelines(),
    )
}
WORK: dict[str, Work] = {work.name: work for work in (Preparation(), Calibration(), *STUDIES.values())}
