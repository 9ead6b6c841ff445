"""What `sysid-generate` refuses, and what it leaves behind when it fails: nothing."""

import contextlib

import pytest
from omegaconf import OmegaConf

from experiments.cli.ends import Refused
from experiments.generate import folder as generate_folder
from experiments.plant.plant import Plant
from experiments.sweeps.shared_output import SharedOutput
from helpers.benchmarks import BOUC_WEN, BUILDING, MEAN_ONLY, generate
from simulators import DivergenceError
from sysid import StoreError


def list_names(folder):
    """Return the names of everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def test_a_divergence_names_record_time_and_state_and_leaves_nothing(tmp_path):
    message = r"record estimation: Building diverged at time .*zone.*substeps"
    diverging = ("system.radiator_capacity=1", "system.substeps=1")

    with pytest.raises(DivergenceError, match=message):
        generate(tmp_path / "a" / "house", *BUILDING, *diverging)

    assert list_names(tmp_path) == []


# --- a configuration of someone else --------------------------------------------------------------

FOREIGN_TARGETS = ("sysid.store.write_bytes", "experiments.cli.entry.sys.exit")


@pytest.mark.parametrize("target", FOREIGN_TARGETS)
def test_a_foreign_configuration_calls_only_classes_of_the_toolbox(target, tmp_path):
    with pytest.raises(ValueError, match=r"noise: .* trust it with \+trusted=\["):
        generate(tmp_path / "bw", *BOUC_WEN, noise={"_target_": target})

    assert list_names(tmp_path) == []


@pytest.mark.parametrize("target", FOREIGN_TARGETS)
def test_trusting_another_module_does_not_allow_nested_targets(target, tmp_path):
    excitation = {"schedule": [{"_target_": target}]}

    with pytest.raises(ValueError, match=r"excitation\.schedule\.0: "):
        generate(tmp_path / "bw", *BOUC_WEN, trusted=["mine"], excitation=excitation)

    assert list_names(tmp_path) == []


# --- folders that exist ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "message"),
    [
        pytest.param(
            "bw",
            r"bw is a folder with files in it: nothing is overwritten; choose a new",
            id="folder with files",
        ),
        pytest.param("bw/notes.txt", r"output .*notes.txt exists", id="file"),
        pytest.param(
            "bw/notes.txt/inner",
            r"could not make the folder .*notes.txt/inner: .*choose an output",
            id="folder in a file",
        ),
    ],
)
def test_an_output_that_exists_is_refused_before_anything_is_simulated(
    output, message, monkeypatch, tmp_path
):
    monkeypatch.setattr(Plant, "trajectory", lambda *_, **__: pytest.fail("simulated"))
    notes = tmp_path / "bw" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")

    with pytest.raises(StoreError, match=message):
        generate(tmp_path / output, *BOUC_WEN)

    assert notes.read_text() == "mine"
    assert list_names(tmp_path / "bw") == ["notes.txt"]
    assert list_names(tmp_path) == ["bw"]


#: a benchmark whose content does not matter
QUICK_BENCHMARK = (*BOUC_WEN, MEAN_ONLY, "noise_paths=4")


@pytest.mark.parametrize(
    "error",
    [StoreError("disk full"), KeyboardInterrupt(), RuntimeError("bug")],
    ids=["full disk", "interrupt", "fault of ours"],
)
def test_an_error_while_writing_leaves_nothing(error, monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(generate_folder, "fill_card", fail)

    with pytest.raises(type(error)):
        generate(tmp_path / "a" / "bw", *QUICK_BENCHMARK)

    assert list_names(tmp_path) == []


@pytest.mark.parametrize("sees_the_other", [True, False], ids=["before", "while renaming"])
def test_of_two_commands_at_once_the_one_that_ends_first_gets_the_output(
    sees_the_other, monkeypatch, tmp_path
):
    output = tmp_path / "a" / "bw"
    late = contextlib.ExitStack()
    (late.enter_context(generate_folder.new_folder(output)) / "CARD.md").write_text("late")
    with generate_folder.new_folder(output) as early:
        (early / "CARD.md").write_text("early")
    if not sees_the_other:
        monkeypatch.setattr(generate_folder, "_check_free", lambda path: None)
    with pytest.raises(StoreError, match=r"bw is a folder with files|could not make the folder"):
        late.close()
    assert (output / "CARD.md").read_text() == "early"
    assert list_names(output.parent) == ["bw"]


def test_a_file_that_appears_while_writing_is_kept(monkeypatch, tmp_path):
    folder = tmp_path / "bw"
    folder.mkdir()
    fill_card = generate_folder.fill_card

    def write_theirs_and_fill_card(*arguments, **options):
        (folder / "theirs").write_text("theirs")
        return fill_card(*arguments, **options)

    monkeypatch.setattr(generate_folder, "fill_card", write_theirs_and_fill_card)

    with pytest.raises(StoreError, match="folder with files in it"):
        generate(folder, *QUICK_BENCHMARK)

    assert list_names(tmp_path) == ["bw"]
    assert list_names(folder) == ["theirs"]


def test_an_empty_folder_is_filled(tmp_path):
    folder = tmp_path / "bw"
    folder.mkdir()

    generate(folder, *QUICK_BENCHMARK)

    assert (folder / "CARD.md").is_file()


# --- the output of a sweep ------------------------------------------------------------------------


def start_sweep(*overrides):
    """Call what Hydra calls at the start of a sweep over two seeds."""
    task = ["seed=1,2", *overrides]
    SharedOutput().on_multirun_start(OmegaConf.create({"hydra": {"overrides": {"task": task}}}))


def test_one_folder_for_a_whole_sweep_is_refused(capsys):
    with pytest.raises(Refused):
        start_sweep("output=X")

    assert "'output=X/${hydra:job.num}'" in capsys.readouterr().err


@pytest.mark.parametrize("override", ["output=X/${hydra:job.num}", "output=X,Y", "name=X"])
def test_a_folder_for_each_job_of_a_sweep_is_accepted(override):
    start_sweep(override)
