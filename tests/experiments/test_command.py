"""What only a process of its own shows: messages, exit codes, working directory, start-up."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from running import BUDGET, COMMAND, DATA, FIGURES, PLAIN, ROOT, SHORT, bits, command, data_of, said

if PLAIN:
    pytest.skip("a command says and writes the same without the compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def from_elsewhere(tmp_path_factory):
    """A run from another working directory, with the folder that the command chooses itself."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    options = {"cwd": elsewhere, "capture_output": True, "text": True, "timeout": 120}
    process = subprocess.run([*COMMAND, *SHORT, "figures=true"], **options)
    assert process.returncode == 0, said(process)
    (folder,) = (elsewhere / "outputs" / "identify").iterdir()
    return process, folder


def test_runs_from_another_working_directory(from_elsewhere):
    process, folder = from_elsewhere
    files = {f"{kind}.nc" for kind in DATA} | {f"{name}.png" for name in FIGURES} | {"summary.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob(".*.tmp"))
    assert str(folder) in process.stdout
    assert "SMSE" in process.stdout


def test_resolved_configuration_is_kept(from_elsewhere):
    _, folder = from_elsewhere
    config = OmegaConf.load(folder / ".hydra" / "config.yaml")
    assert config.budget == BUDGET
    stored = OmegaConf.create(data_of(folder, "result").attrs["configuration"])
    assert OmegaConf.to_container(config, resolve=True) == OmegaConf.to_container(stored)


def test_command_and_library_compute_the_same_bits(from_elsewhere, finished):
    _, folder = from_elsewhere
    for kind in DATA:
        assert bits(data_of(folder, kind)) == bits(data_of(finished, kind)), kind


def test_says_nothing_strange(from_elsewhere):
    process, _ = from_elsewhere
    for word in ("Warning", "Traceback", "DEBUG", "numba"):
        assert word not in said(process)
    assert len(process.stdout.splitlines()) <= 10


def test_no_progress_bar_off_a_terminal(from_elsewhere):
    process, _ = from_elsewhere
    assert "samples/s]" not in process.stderr
    assert "\r" not in process.stderr


def test_progress_bar_on_a_terminal(monkeypatch):
    """Rate, size of the dictionary and running SMSE."""
    import io

    import numpy as np

    from experiments import progress
    from experiments.progress import EVERY, Progress
    from sysid.narx.lags import LagRows
    from sysid.stream import NOT_PREDICTED, Block

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen, original = Terminal(), progress.tqdm
    monkeypatch.setattr(progress, "tqdm", lambda **options: original(file=screen, ncols=120, **options))
    with Progress(2 * EVERY) as bar:
        for k in range(2 * EVERY):
            record = NOT_PREDICTED.copy()
            record["mean"], record["n_points"] = 0.5, 17
            bar.show(Block(LagRows(np.zeros((1, 1)), np.array([float(k % 2)]), np.array([k])), record))
    shown = screen.getvalue()
    assert "17 points" in shown
    assert "SMSE 1.000" in shown
    assert "samples/s" in shown


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["nonsense=1"], ["nonsense"]),
        (["+nonsense=1"], ["unknown configuration key 'nonsense'", "budget"]),
        (["+budgett=50"], ["budgett", "did you mean 'budget'"]),
        (["insertion.error_treshold=1"], ["error_treshold"]),
        (["+insertion.error_treshold=1"], ["error_treshold", "insertion"]),
        (["reduction=foo"], ["foo", "mean_relevance", "marginal_log_likelihood"]),
        (["weather=measured", "weather.path=no.csv"], ["no.csv", "path"]),
        (["budget=1"], ["budget", "2"]),
        (["data=bouc_wen", "system=building"], ["record", "system", "data=simulated"]),
        (["system=none", "insertion=error"], ["system=none", "system=building"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_mistakes_end_in_a_word_and_not_in_a_traceback(overrides, words, tmp_path):
    process = command(tmp_path / "run", *SHORT, *overrides)
    assert process.returncode == 1
    assert "Traceback" not in said(process)
    for word in words:
        assert word in said(process)


def test_divergence_in_a_process(tmp_path):
    process = command(tmp_path / "run", *SHORT, "system.radiator_capacity=1", "system.substeps=1")
    assert process.returncode == 1
    assert "Traceback" not in said(process)
    assert "diverged at time" in said(process)
    assert (tmp_path / "run" / "trajectory.nc").exists()


def test_a_record_in_a_process(tmp_path):
    """Lags chosen from the record are told; the run needs no system."""
    path = tmp_path / "record.csv"
    values = [(0.3 * ((5 * k) % 7), 0.3 * ((5 * (k - 1)) % 7)) for k in range(200)]
    path.write_text("u,y\n" + "\n".join(f"{u:.3f},{y:.3f}" for u, y in values) + "\n")
    options = (f"data.estimation={path}", f"data.test={path}", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.1")
    small = ("training.n_initial=20", "training.restarts=1", "budget=10", "figures=true", "narx.max_order=2")
    process = command(tmp_path / "run", "data=csv", *options, *small)
    assert process.returncode == 0, said(process)
    assert "Lags chosen: order" in process.stdout
    assert "Warning" not in said(process)
    assert {"trajectory.nc", "signals.png", "prediction.png"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_help_lists_options_and_loads_nothing_heavy(tmp_path):
    script = (
        "import sys, runpy\nsys.argv = ['sysid-identify', '--help']\n"
        "try:\n    runpy.run_module('experiments.identify', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'numba', 'numpy', 'scipy', 'xarray', 'netCDF4', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
    process = subprocess.run([sys.executable, "-c", script], **options)
    assert process.returncode == 0, said(process)
    for word in ("reduction: ", "mean_relevance", "budget: 100"):
        assert word in process.stdout
    assert not list(tmp_path.iterdir())


def test_a_run_without_figures_does_not_load_matplotlib(tmp_path):
    script = (
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from running import SHORT, execute\n"
        f"execute({str(tmp_path)!r}, *SHORT)\nassert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path)


def test_numerics_use_one_blas_thread():
    script = (
        "import experiments.identify, experiments.identification, threadpoolctl\n"
        "pools = [p for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas']\n"
        "assert pools and all(p['num_threads'] == 1 for p in pools), pools\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, cwd=ROOT)


def test_installed_command_is_the_module():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["sysid-identify"] == "experiments.identify:main"
    installed = Path(sys.executable).with_name("sysid-identify")
    options = {"capture_output": True, "text": True, "timeout": 60}
    assert "reduction" in subprocess.run([installed, "--help"], check=True, **options).stdout


def test_multirun_sweeps_and_goes_on_after_a_mistake(tmp_path):
    overrides = ["--multirun", f"hydra.sweep.dir={tmp_path}/sweep", *SHORT, "budget=1,30"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    process = subprocess.run([*COMMAND, *overrides], **options)
    assert process.returncode == 1
    assert "budget" in said(process)
    assert (tmp_path / "sweep" / "1" / "job.nc").exists()


@pytest.mark.slow
def test_measured_year_with_the_likelihood_runs(measured_weather, tmp_path):
    example = (
        "weather=measured",
        f"weather.path={measured_weather}",
        "reduction=marginal_log_likelihood",
        "acceptance=matched",
        "insertion=error",
        "insertion.error_threshold=0.1",
        "budget=100",
        "seed=3",
    )
    process = command(tmp_path / "run", *example)
    assert process.returncode == 0, said(process)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["n_seen"] > 0
    # better than before the stream; the acceptance locks the dictionary, and the run says so
    assert summary["smse"] < min(summary["smse_no_change"], 0.5 * summary["smse_initial"])
    assert summary["n_turned_away"] > 0.5 * summary["n_inserted"]
    assert any("turned away" in warning and "acceptance=none" in warning for warning in summary["warnings"])
