"""All studies by name, in the order of the report."""

from experiments.reproduce.baselines import BaselinesStudy
from experiments.reproduce.boards import BoardsStudy
from experiments.reproduce.claims import Guidelines
from experiments.reproduce.control import ControlStudy
from experiments.reproduce.excitation import ExcitationStudy
from experiments.reproduce.online import OnlineStudy
from experiments.reproduce.study import Study
from experiments.reproduce.sweeps import (
    BuildingSweep,
    Grid,
    RastriginMaps,
    Reduction,
    VanDerPolSweep,
)
from experiments.reproduce.tables import ComplexityStudy, Table

IN_REPORT_ORDER: tuple[Study, ...] = (
    ComplexityStudy(),
    BaselinesStudy(),
    Reduction(),
    Table("table_2", "Table 2: all new points offered"),
    RastriginMaps(),
    Table("table_3", "Table 3: insertion by the variance threshold"),
    Table("table_4", "Table 4: insertion by the error threshold"),
    VanDerPolSweep(),
    BuildingSweep(),
    Grid(),
    Guidelines(),
    OnlineStudy(),
    BoardsStudy(),
    ExcitationStudy(),
    ControlStudy(),
)
STUDIES: dict[str, Study] = {study.name: study for study in IN_REPORT_ORDER}
