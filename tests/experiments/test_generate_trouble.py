"""`sysid-generate` and bad input: a clear word, and no folder that is half of one."""

import os
import re
import shutil
from pathlib import Path

import pytest
from generating import BOUC_WEN, BUILDING, SHORT, command, generate
from omegaconf import OmegaConf
from running import ROOT, said

from experiments.generate import SharedOutput
from experiments.generation import run as module
from experiments.generation.run import run
from experiments.launch import Refused
from experiments.plant import Plant
from simulators import DivergenceError
from sysid import StoreError


def left(folder):
    """Everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def test_a_divergence_names_record_time_and_state_and_leaves_nothing(tmp_path):
    with pytest.raises(DivergenceError, match=r"record estimation: Building diverged at time .*zone.*substeps"):
        generate(tmp_path / "a" / "house", *BUILDING, "system.radiator_capacity=1", "system.substeps=1")
    assert left(tmp_path) == []


def test_a_configuration_of_others_calls_nothing_but_classes_of_the_toolbox(tmp_path):
    for target in ("sysid.store.write_bytes", "experiments.launch.sys.exit", "simulators.np.save"):
        with pytest.raises(ValueError, match=r"noise: .* trust it with \+trusted=\["):
            generate(tmp_path / "bw", *BOUC_WEN, noise={"_target_": target})
        with pytest.raises(ValueError, match=r"excitation\.schedule\.0: "):
            generate(tmp_path / "bw", *BOUC_WEN, trusted=["mine"], excitation={"schedule": [{"_target_": target}]})
    assert left(tmp_path) == []


def test_what_is_there_is_not_touched_and_named_before_anything_is_simulated(monkeypatch, tmp_path):
    monkeypatch.setattr(Plant, "trajectory", lambda *_, **__: pytest.fail("simulated"))
    folder = tmp_path / "bw"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"bw is a folder with files in it: nothing is overwritten; choose a new"):
        generate(folder, *BOUC_WEN)
    with pytest.raises(StoreError, match=r"output .*notes.txt exists"):
        generate(folder / "notes.txt", *BOUC_WEN)
    with pytest.raises(StoreError, match=r"could not make the folder .*notes.txt/inner: .*choose an output"):
        generate(folder / "notes.txt" / "inner", *BOUC_WEN)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (left(folder), left(tmp_path)) == (["notes.txt"], ["bw"])


def test_what_goes_wrong_while_writing_leaves_nothing_and_a_folder_that_appears_is_kept(monkeypatch, tmp_path):
    original, failing = module.fill_card, [StoreError("disk full"), KeyboardInterrupt(), RuntimeError("bug")]

    def fill_card(*arguments, **options):
        if failing:
            raise failing.pop(0)
        (tmp_path / "bw" / "theirs").write_text("theirs")
        return original(*arguments, **options)

    monkeypatch.setattr(module, "fill_card", fill_card)
    for error in tuple(map(type, failing)):
        with pytest.raises(error):
            generate(tmp_path / "a" / "bw", *BOUC_WEN, "baseline=[mean]")
        assert left(tmp_path) == []
    (tmp_path / "bw").mkdir()
    with pytest.raises(StoreError, match="folder with files in it"):
        generate(tmp_path / "bw", *BOUC_WEN, "baseline=[mean]")
    assert (left(tmp_path), left(tmp_path / "bw")) == (["bw"], ["theirs"])
    (tmp_path / "bw" / "theirs").unlink()
    monkeypatch.setattr(module, "fill_card", original)
    assert (generate(tmp_path / "bw", *BOUC_WEN, "baseline=[mean]") / "CARD.md").is_file()


def test_one_folder_for_a_whole_sweep_is_refused(capsys):
    def start(*overrides):
        config = OmegaConf.create({"hydra": {"overrides": {"task": ["seed=1,2", *overrides]}}})
        SharedOutput().on_multirun_start(config)

    with pytest.raises(Refused):
        start("output=X")
    assert "'output=X/${hydra:job.num}'" in capsys.readouterr().err
    for fine in ("output=X/${hydra:job.num}", "output=X,Y", "name=X"):
        start(fine)


@pytest.mark.slow
def test_a_system_of_the_users_own_makes_a_folder_that_starts_another_only_if_trusted(tmp_path):
    (tmp_path / "mine" / "conf" / "system").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("two_rooms.py"), tmp_path / "mine" / "rooms.py")
    yaml = "_target_: mine.rooms.TwoRooms\ndt: 0.5\nexchange: 0.25\n"
    (tmp_path / "mine" / "conf" / "system" / "rooms.yaml").write_text(yaml)
    secret, short = "seed=7000000000000000001", [*SHORT, "baseline=[mean]", f"hydra.run.dir={tmp_path}/run"]
    given = ["--config-dir", "mine/conf", "system=rooms", "noise.snr_db=30", secret, "output=published/bench", *short]
    environment, bench = os.environ | {"PYTHONPATH": str(ROOT)}, tmp_path / "published" / "bench"
    process = command(tmp_path, *given, env=environment)
    assert process.returncode == 0, said(process)
    assert "published/bench" in process.stdout
    assert not [words for words in ("can be guessed", "Traceback", "Warning") if words in said(process)]
    text = re.sub(r" +\|", " |", (bench / "CARD.md").read_text())
    for words in (
        "| `exchange` | 0.25 | between the rooms \\| 1/h |",
        "flow = parameters[0]",
        "sysid-generate --config-dir mine/conf system=rooms noise.snr_db=30 estimation=",
        "Run it in the folder from which `mine.rooms` is imported",
    ):
        assert words in text, words
    assert not [hidden for hidden in ("7000000000000000001", "published", str(tmp_path)) if hidden in text]
    again = ["--config-dir", str(bench), "--config-name=configuration", "+figures=false", f"hydra.run.dir={tmp_path}/r"]
    refused = command(tmp_path, *again, "+output=again", "+trusted=[mine.other]", env=environment)
    assert (refused.returncode, (tmp_path / "again").exists()) == (1, False)
    assert "+trusted=[mine.rooms]" in said(refused)
    trusted = command(tmp_path, *again, "+output=again", "+trusted=[mine.rooms]", env=environment)
    assert trusted.returncode == 0, said(trusted)
    assert (tmp_path / "again" / "csv" / "test.csv").read_bytes() == (bench / "csv" / "test.csv").read_bytes()
    own = {"trusted": ["mine.rooms"], "output": "x", "figures": False}
    with pytest.raises(ValueError, match=r"system: 'mine.rooms.TwoRooms' is no class of the toolbox"):
        run(OmegaConf.merge(OmegaConf.load(bench / "configuration.yaml"), own), tmp_path)
