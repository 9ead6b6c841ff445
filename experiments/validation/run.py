"""One validation from end to end: read the model, find the records, predict, judge, store, draw, tell."""

from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.build import build, trusted_names
from experiments.interrupt import deferred_interrupt
from experiments.options import flag, whole
from experiments.summary import without_effect
from experiments.validation.assessment import assess, check_lengths, default_window, plan_cases
from experiments.validation.loop import compare_loops
from experiments.validation.material import Material, check_signals, read_material
from experiments.validation.report import make_report, tell, write
from sysid import JointModel
from sysid.data.source import ROLES
from sysid.simulation.forecast import check_records
from sysid.store import header


def run(config: DictConfig, folder: Path) -> float:
    """Validate the configured model and write everything to the folder; returns the free-run RMSE of the first output.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        No model, a file that is none, records that do not fit it, a simulation that diverges. Nothing is written then.
    """
    check_options(config)
    propagation = build(config, "propagation")
    if not isinstance(config.model, str) or not config.model:
        raise ValueError(f"name the file of the model, model=outputs/identify/.../model.nc, got model={config.model!r}")
    joint = JointModel.load(config.model, trusted=trusted_names(config))
    material = read_material(config)
    check_signals(joint, material, config.left_out)
    check_records(joint, material.records)
    cases = plan_cases(config.horizons, config.windows, default_window(joint, material))
    check_lengths(cases, material)
    loop = compare_loops(joint, material, propagation, window=cases[0].window, seed=config.seed)
    assessment = assess(joint, material, cases, propagation, seed=config.seed, loop=loop)
    report = make_report(assessment, list_notes(config, material))
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "seed": config.seed, "model": config.model}
    with deferred_interrupt():
        write(report, folder, attributes, figures=config.figures)
        tell(report, folder)
    return assessment.scores[assessment.free_run][assessment.outputs[0]].rmse


def check_options(config: DictConfig) -> None:
    """Check what is not an object of its own, before anything is read.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    plan_cases(config.horizons, config.windows, 1)
    if config.part is not None and config.part not in ROLES:
        raise ValueError(f"part must be one of {', '.join(ROLES)}, or null, got {config.part!r}")
    if not isinstance(config.left_out, list | ListConfig) or not all(isinstance(n, str) for n in config.left_out):
        raise ValueError(f"left_out must be a list of names of signals, such as [u2], got {config.left_out!r}")
    whole("seed", config.seed, 0)
    flag("figures", config.figures)


def list_notes(config: DictConfig, material: Material) -> list[str]:
    """Sentences on options without effect, and on a simulation that the model may have learned from."""
    notes = []
    if idle := without_effect(material.unused):
        notes.append(f"without effect on {material.title}: {' '.join(idle)}")
    stated = header(config.model)
    if material.plant is not None and int(stated.get("seed", -1)) == config.seed and "configuration" in stated:
        before = OmegaConf.to_container(OmegaConf.create(str(stated["configuration"])))
        if isinstance(before, dict) and before.get("system") == OmegaConf.to_container(config.system, resolve=True):
            notes.append(
                f"the simulation has the seed {config.seed} of the identification: the model may have learned from "
                "these very samples; choose another seed"
            )
    return notes
