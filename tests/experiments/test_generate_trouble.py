"""`sysid-generate` and bad input: a clear word, and no folder that is half of one."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from generating import BOUC_WEN, BUILDING, COMMAND, SHORT, command, generate
from running import PLAIN, ROOT, said

from experiments.benchmark_folder import card, writer
from simulators import DivergenceError
from sysid import StoreError

if PLAIN:
    pytest.skip("trouble ends alike without the compiler", allow_module_level=True)


def left(folder):
    """Everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["seed=-1"], ["seed", "at least 0", "-1"]),
        (["seed=null"], ["seed", "None"]),
        (["seed=1.5"], ["seed", "1.5"]),
        (["estimation=1"], ["estimation", "at least 2"]),
        (["test=true"], ["test", "True"]),
        (["validation=soon"], ["validation", "soon", "365d"]),
        (["test=11"], ["initialisation_window=10", "11 samples", "lengthen"]),
        (["estimation=10"], ["n_initial=20", "estimation"]),
        (["realisations.test=0"], ["realisations.test", "at least 1"]),
        (["transient=-1"], ["transient", "at least 0"]),
        (["initialisation_window=0"], ["initialisation_window", "at least 1"]),
        (["initialisation_window=2"], ["initialisation_window=2", "largest lag", "3"]),
        (["name=a/b"], ["name", "'a/b'"]),
        (["name=''"], ["name", "''"]),
        (["licence=''"], ["licence", "''"]),
        (["figures=maybe"], ["figures", "maybe"]),
        (["output=''"], ["output", "''"]),
        (["noise.std=-1", "noise.snr_db=null"], ["std", ">= 0"]),
        (["interpolation=cubic"], ["interpolation", "cubic", "held"]),
        (["excitation.band=[5,1500]"], ["band", "1500"]),
        (["budget=0"], ["budget", "at least 2"]),
        (["baseline.arx.ridge=-1"], ["ridge", "-1"]),
        (["system.mass=0"], ["mass", "> 0"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_bad_settings_are_named_and_leave_nothing(overrides, words, tmp_path):
    with pytest.raises(ValueError, match=r".") as caught:
        generate(tmp_path / "bw", *BOUC_WEN, *overrides)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert left(tmp_path) == []


def test_a_divergence_names_record_time_and_state_and_leaves_nothing(tmp_path):
    with pytest.raises(DivergenceError, match=r"record estimation: Building diverged at time .*zone.*substeps"):
        generate(tmp_path / "house", *BUILDING, "system.radiator_capacity=1", "system.substeps=1")
    assert left(tmp_path) == []


def test_a_folder_with_files_is_not_touched(tmp_path):
    folder = tmp_path / "bw"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"bw is a folder with files in it: nothing is overwritten; choose a new"):
        generate(folder, *BOUC_WEN)
    assert (folder / "notes.txt").read_text() == "mine"
    assert left(folder) == ["notes.txt"]
    assert left(tmp_path) == ["bw"]


def test_a_file_in_the_place_of_the_folder_is_not_touched(tmp_path):
    (tmp_path / "bw").write_text("mine")
    with pytest.raises(StoreError, match=r"output .*bw exists"):
        generate(tmp_path / "bw", *BOUC_WEN)
    with pytest.raises(StoreError, match=r"could not make the folder .*bw/inner: .*choose an output"):
        generate(tmp_path / "bw" / "inner", *BOUC_WEN)
    assert (tmp_path / "bw").read_text() == "mine"
    assert left(tmp_path) == ["bw"]


def test_an_empty_folder_is_filled_and_missing_parents_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    assert (generate(tmp_path / "empty", *BOUC_WEN, "baseline=[mean]") / "CARD.md").is_file()
    assert (generate(tmp_path / "a" / "b", *BOUC_WEN, "baseline=[mean]") / "CARD.md").is_file()
    assert left(tmp_path) == ["a", "empty"]


def test_parents_that_were_made_go_again(tmp_path):
    with pytest.raises(ValueError, match="n_initial"):
        generate(tmp_path / "a" / "b", *BOUC_WEN, "estimation=10")
    assert left(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="folder permissions of POSIX")
def test_a_read_only_place_is_named_before_anything_is_simulated(monkeypatch):
    from experiments.plant import Plant

    def forbidden(self, n_samples, seed, **_):
        raise AssertionError("simulated")

    monkeypatch.setattr(Plant, "trajectory", forbidden)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        is_root = os.geteuid() == 0
        try:
            if is_root:
                os.seteuid(65534)  # root may write anywhere
            with pytest.raises(
                StoreError, match=r"could not make the folder .*bw: Permission denied; choose an output"
            ):
                generate(folder / "bw", *BOUC_WEN)
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert left(folder) == []


@pytest.mark.parametrize("error", [StoreError("disk full"), KeyboardInterrupt(), RuntimeError("bug")], ids=repr)
def test_whatever_happens_while_writing_nothing_is_left(error, monkeypatch, tmp_path):
    def fail(facts):
        raise error

    monkeypatch.setattr(writer, "card", fail)
    assert card.card is not fail
    with pytest.raises(type(error)):
        generate(tmp_path / "bw", *BOUC_WEN)
    assert left(tmp_path) == []


def test_a_folder_that_appears_meanwhile_is_not_replaced(monkeypatch, tmp_path):
    original = writer.card

    def meanwhile(facts):
        (tmp_path / "bw").mkdir()
        (tmp_path / "bw" / "theirs").write_text("theirs")
        return original(facts)

    monkeypatch.setattr(writer, "card", meanwhile)
    with pytest.raises(StoreError, match="folder with files in it"):
        generate(tmp_path / "bw", *BOUC_WEN)
    assert left(tmp_path) == ["bw"]
    assert left(tmp_path / "bw") == ["theirs"]


# the rest needs processes of their own


def test_the_command_makes_a_folder_and_says_where(tmp_path):
    secret = "seed=7000000000000000001"
    process = command(tmp_path, *SHORT, *BOUC_WEN, "baseline=[mean]", secret, "output=published/bw")
    assert process.returncode == 0, said(process)
    folder = tmp_path / "published" / "bw"
    text = (folder / "CARD.md").read_text()
    assert "sysid-generate estimation=" in text
    assert "'excitation.band=[5,150]'" in text
    for hidden in ("7000000000000000001", "published"):
        assert hidden not in text
    assert "published/bw" in process.stdout
    assert "noise floor" in process.stdout
    assert "can be guessed" not in process.stdout
    assert "Traceback" not in said(process)
    assert "Warning" not in said(process)


def test_without_an_output_the_folder_is_that_of_the_run(tmp_path):
    process = command(tmp_path, *SHORT, *BOUC_WEN, "baseline=[mean]", "name=tiny", f"hydra.run.dir={tmp_path}/run")
    assert process.returncode == 0, said(process)
    assert (tmp_path / "run" / "tiny" / "benchmark.nc").is_file()
    assert "seed 0 can be guessed" in process.stdout


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["system.radiator_capacity=1", "system.substeps=1"], ["Error: record estimation", "diverged at time", "zone"]),
        (["+outputt=x"], ["unknown configuration key 'outputt'", "did you mean 'output'"]),
        (["output=taken"], ["Error: output", "taken", "nothing is overwritten"]),
    ],
    ids=lambda value: value[0] if "=" in value[0] else "",
)
def test_mistakes_end_in_a_line_and_not_in_a_traceback(overrides, words, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    process = command(tmp_path, *SHORT, *BUILDING, f"hydra.run.dir={tmp_path}/run", *overrides)
    assert process.returncode == 1
    assert "Traceback" not in said(process)
    for word in words:
        assert word in said(process)
    assert not list(tmp_path.rglob("CARD.md"))
    assert not list(tmp_path.rglob(".*.tmp"))


def test_one_folder_for_a_whole_sweep_is_refused_before_the_first_run(tmp_path):
    process = command(tmp_path, "-m", *SHORT, *BOUC_WEN, "seed=1,2", "output=X", f"hydra.sweep.dir={tmp_path}/sweep")
    assert process.returncode == 1
    lines = said(process).strip().splitlines()
    assert len(lines) == 1, lines
    assert "every run of this sweep would write to output=X" in lines[0]
    assert "'output=X/${hydra:job.num}'" in lines[0]
    assert not list(tmp_path.rglob("CARD.md"))


def test_what_the_refusal_advises_works(tmp_path):
    options = ("-m", *SHORT, *BOUC_WEN, "baseline=[mean]", f"hydra.sweep.dir={tmp_path}/sweep")
    process = command(tmp_path, *options, "seed=1,2", "output=X/${hydra:job.num}")
    assert process.returncode == 0, said(process)
    assert all((tmp_path / "X" / number / "CARD.md").is_file() for number in ("0", "1"))
    each = command(tmp_path, *options, "output=a,b")
    assert each.returncode == 0, said(each)
    assert all((tmp_path / name / "CARD.md").is_file() for name in ("a", "b"))


PENDULUM = '''
from dataclasses import dataclass
from typing import ClassVar
import math
import numpy as np
from simulators import Signal, System


@dataclass(frozen=True)
class Pendulum(System):
    """Damped pendulum with a torque.

    ::

        a'' = -g/l sin(a) - d a' + u + w
    """

    states: ClassVar = (Signal("angle_state", "rad", "angle"), Signal("rate", "rad/s", "rate"))
    inputs: ClassVar = (Signal("torque", "1/s^2", "torque over inertia"),)
    outputs: ClassVar = (Signal("angle", "rad", "angle from the vertical"),)
    noises: ClassVar = (Signal("torque_noise", "1/s^2", "noise on the torque"),)

    dt: float = 0.1  # s
    substeps: int = 4
    length: float = 1.5  # l, m
    damping: float = 0.3
    noise: float = 0.02  # 1/s^2

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[1]
        derivative[1] = -9.81 / parameters[0] * math.sin(state[0]) - parameters[1] * state[1] + input[0] + noise[0]

    def parameters(self):
        return np.array([self.length, self.damping])

    def initial_state(self):
        return np.zeros(2)

    def noise_std(self):
        return np.array([self.noise])

    def output(self, state):
        return state[..., :1]
'''


def test_a_system_of_the_users_own_is_like_any_other(tmp_path):
    (tmp_path / "mine" / "conf" / "system").mkdir(parents=True)
    (tmp_path / "mine" / "pendulum.py").write_text(PENDULUM)
    (tmp_path / "mine" / "conf" / "system" / "pendulum.yaml").write_text(
        "_target_: mine.pendulum.Pendulum\ndt: 0.1\nlength: 1.25\n"
    )
    arguments = ["--config-dir", "mine/conf", "system=pendulum", "noise.snr_db=30", "output=bench", *SHORT]
    environment = os.environ | {"PYTHONPATH": f".{os.pathsep}{ROOT}"}
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120, "env": environment}
    process = subprocess.run([*COMMAND, *arguments], **options)
    assert process.returncode == 0, said(process)
    text = (tmp_path / "bench" / "CARD.md").read_text()
    for words in (
        "a'' = -g/l sin(a) - d a' + u + w",
        "| `length` | 1.25 | l, m |",
        "| `damping` | 0.3 |  |",
        "| `torque` | input | 1/s^2 |",
        "math.sin(state[0])",
        "PYTHONPATH=. sysid-generate --config-dir mine/conf system=pendulum noise.snr_db=30 estimation=",
        "PYTHONPATH must name the folder from which `mine.pendulum` is imported",
    ):
        assert words in text, words
    assert str(tmp_path) not in text
    assert (tmp_path / "bench" / "csv" / "test.csv").read_text().startswith("time,torque,angle\n")
