"""One validation from end to end: read the model, find the records, predict, judge, store, draw, tell."""

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.build import build, trusted_names
from experiments.interrupt import deferred_interrupt
from experiments.summary import without_effect
from experiments.validation.assessment import Assessment, assess, check_lengths, default_window
from experiments.validation.compatibility import check_loop, check_together
from experiments.validation.loop_comparison import compare_loops
from experiments.validation.material import Material, material_of
from experiments.validation.options import Options, options_of
from experiments.validation.report import report_of, tell, write
from sysid import JointModel, Propagation
from sysid.simulation.forecast import check_records
from sysid.store import header

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> float:
    """Validate the configured model and write everything to the folder; returns the free-run RMSE of the first output.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        No model, a file that is none, records that do not fit it, a simulation that diverges. Nothing is written then.
    """
    options, propagation = options_of(config), build(config, "propagation")
    joint = model_of(config.model, trusted_names(config))
    material = material_of(config, options)
    assessment = validated(joint, material, options, propagation)
    notes = [
        f"without effect on {material.title}: {' '.join(idle)}" for idle in [without_effect(material.unused)] if idle
    ]
    if is_same_simulation(config, material):
        notes.append(
            f"the simulation has the seed {config.seed} of the identification: the model may have learned from these "
            "very samples; choose another seed"
        )
    report = report_of(assessment, notes)
    attributes = {
        "configuration": OmegaConf.to_yaml(config, resolve=True),
        "seed": int(config.seed),
        "model": str(config.model),
    }
    with deferred_interrupt():
        write(report, folder, attributes, figures=options.figures)
        tell(report, folder)
    return assessment.scores[assessment.free_run][assessment.outputs[0]].rmse


def model_of(path: object, trusted: Sequence[str] = ()) -> JointModel:
    """Model of a file, which may name classes of the user's own that are trusted.

    Raises
    ------
    ValueError, sysid.StoreError
        No file named; a file that is missing, damaged, or no model.
    """
    if not isinstance(path, str) or not path:
        raise ValueError(f"name the file of the model, model=outputs/identify/.../model.nc, got model={path!r}")
    return JointModel.load(path, trusted=trusted)


def validated(joint: JointModel, material: Material, options: Options, propagation: Propagation) -> Assessment:
    """Check that everything fits, then predict; the cheapest checks first.

    Raises
    ------
    ValueError, TypeError
        Whatever does not fit.
    """
    check_together(joint, material, options.left_out)
    check_records(joint, material.records)
    window = default_window(joint, material)
    cases = options.cases(window)
    check_lengths(cases, material)
    if material.plant is not None and not material.plant.is_open_loop:
        check_loop(joint, material.plant.controller)
    loop = compare_loops(joint, material, propagation, window=cases[0].window, seed=options.seed)
    return assess(joint, material, options, propagation, loop=loop)


def is_same_simulation(config: DictConfig, material: Material) -> bool:
    """Whether the model states that it was identified with the seed of this simulation of the same system."""
    if material.plant is None:
        return False
    stated = header(config.model)
    if "configuration" not in stated or "seed" not in stated:
        return False
    before = OmegaConf.to_container(OmegaConf.create(str(stated["configuration"])))
    system = before.get("system") if isinstance(before, dict) else None
    return int(stated["seed"]) == config.seed and system == OmegaConf.to_container(config.system, resolve=True)
