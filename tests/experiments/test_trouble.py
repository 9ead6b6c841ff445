"""Bad input, a full disk, Ctrl-C, a kill, a plant that diverges: a clear word, and nothing is lost."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from running import (
    COMMAND,
    DATA,
    DAYS,
    PLAIN,
    ROOT,
    SHORT,
    command,
    configured,
    data_of,
    execute,
    phases,
    said,
    summary_of,
)

from experiments import identification
from experiments.launch import Stopped
from sysid import Model, store

if PLAIN:
    pytest.skip("trouble ends alike without the compiler", allow_module_level=True)

#: runs for minutes
ENDLESS = ("duration=36500d", "identified=1", "figures=false", "insertion=always", "acceptance=none")
DIVERGING = ("system.radiator_capacity=1", "system.substeps=1")


def refused(*overrides, folder):
    """Message of the error that stops a run before it has computed anything."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        execute(folder, *SHORT, *overrides)
    assert list(folder.iterdir()) == []
    error = caught.value
    return f"{error} {error.__cause__ or ''}"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["identified=0"], ["identified", "above 0", "0"]),
        (["identified=1.5"], ["identified", "at most 1", "1.5"]),
        (["budget=1"], ["budget", "at least 2", "1"]),
        (["budget=2.5"], ["budget", "whole number", "2.5"]),
        (["budget=-3"], ["budget", "at least 2"]),
        (["insertion.error_threshold=-0.1"], ["error_threshold", "at least 0", "-0.1"]),
        (["insertion.error_threshold=.nan"], ["error_threshold", "nan"]),
        (["training.n_initial=1"], ["n_initial", "at least 2"]),
        (["training.restarts=0"], ["restarts", "at least 1"]),
        (["training.noise_bounds=[1,0.1]"], ["noise_bounds", "low < high"]),
        (["seed=-1"], ["seed", ">= 0"]),
        (["duration=0"], ["duration", "positive"]),
        (["duration=-3d"], ["duration", "positive"]),
        (["duration=soon"], ["duration", "365d", "soon"]),
        (["duration=1h"], ["duration", "at least", "n_initial"]),
        (["duration=20samples"], ["duration", "at least", "n_initial"]),
        (["duration=5000sample"], ["duration", "5000samples", "365d"]),
        (["duration=20000001samples"], ["duration", "20000000", "365d"]),
        (["duration=1e300"], ["duration", "20000000", "5000samples"]),
        (["identified=half"], ["identified", "fraction", "half"]),
        (["figures=maybe"], ["figures", "true or false", "maybe"]),
        (["seed=true"], ["seed", "whole number", "True"]),
        (["interpolation=cubic"], ["interpolation", "held, linear, band_limited", "cubic"]),
        (["noise.std=-1"], ["noise", "std", "-1"]),
        (["excited=[mass_flow]"], ["mass_flow", "controller", "excitation"]),
        (["system=none", "insertion=error"], ["system=none", "data="]),
        (["narx.outputs.zone_temperature=5000"], ["at least", "lags"]),
        (["narx.outputs.zone_temperature=0"], ["zone_temperature", "lag"]),
        (["narx.target=mass_flow"], ["target", "zone_temperature"]),
        (["on_missing=guess"], ["on_missing", "error", "skip"]),
        (["acceptance.reference=guess"], ["reference", "leave_one_out", "in_sample", "published"]),
        (["narx.predict=guess"], ["predict", "change", "value"]),
        (["system.dt=-1"], ["dt", "> 0"]),
        (["controller.dt=600"], ["dt", "controller"]),
        (["system.substeps=0"], ["substeps", "1"]),
        (["system.zone_noise_std=-1"], ["zone_noise_std", ">= 0"]),
        (["system.zone_capacity=0"], ["zone_capacity", "> 0"]),
        (["controller.maximum=-1"], ["minimum", "maximum"]),
        (["controller.output=room"], ["room", "zone_temperature"]),
        (["weather.weather_std=-1"], ["weather_std", ">= 0"]),
        (["weather=measured"], ["path", "weather.path"]),
        (["weather=measured", "weather.path=no.csv"], ["no.csv", "no such file"]),
        (["weather=epw", "weather.path=no.epw"], ["no.epw", "no such file"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_bad_settings_are_named(overrides, words, tmp_path):
    message = refused(*overrides, folder=tmp_path)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_bad_noise_variance_of_fixed_training_is_named_at_once(value, tmp_path):
    short = [o for o in SHORT if not o.startswith("training")]
    with pytest.raises(ValueError, match="noise_variance") as caught:
        execute(tmp_path, *short, "training=fixed", f"training.noise_variance={value}")
    assert str(value) in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("variance", -1.0), ("length_scales", -1.0), ("length_scales", "[1,2]")])
def test_bad_kernels_of_fixed_training_are_named(name, value, tmp_path):
    short = [o for o in SHORT if not o.startswith("training")]
    with pytest.raises(ValueError, match=name):
        execute(tmp_path, *short, "training=fixed", f"training.{name}={value}")


@pytest.mark.parametrize("override", ["seed=abc", "seed=null", "budget=null", "budget=many", "duration=null"])
def test_values_of_a_wrong_type_name_their_option(override, tmp_path):
    message = refused(override, folder=tmp_path)
    assert override.partition("=")[0] in message
    assert "not supported between" not in message


def weather_file(folder, header="temp_air", hours=24 * DAYS + 2, change=lambda rows: rows):
    path = folder / "weather.csv"
    rows = [f"{5 + 3 * np.sin(hour / 4):.2f}" for hour in range(hours)]
    path.write_text("\n".join([header, *change(rows)]) + "\n")
    return path


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hours": 30}, ["weather.csv", "h"]),
        ({"header": "sunshine"}, ["column", "sunshine"]),
        ({"change": lambda rows: [*rows[:5], "", *rows[6:]]}, ["line 7"]),
        ({"change": lambda rows: [*rows[:5], "warm", *rows[6:]]}, ["line 7", "warm"]),
        ({"change": lambda rows: [*rows[:5], "nan", *rows[6:]]}, ["line 7", "nan"]),
        ({"change": lambda rows: [*rows[:5], "9999", *rows[6:]]}, ["line 7", "9999"]),
        ({"change": lambda rows: []}, ["header", "weather.csv"]),
    ],
    ids=["short", "column", "gap", "text", "nan", "unphysical", "empty"],
)
def test_bad_weather_files_are_named(settings, words, tmp_path):
    path, folder = weather_file(tmp_path, **settings), tmp_path / "run"
    message = refused("weather=measured", f"weather.path={path}", folder=folder)
    for word in words:
        assert word in message, message


def test_wrong_weather_column_lists_the_columns(tmp_path):
    path, folder = weather_file(tmp_path), tmp_path / "run"
    options = ("weather=measured", f"weather.path={path}", "weather.column=tmp")
    message = refused(*options, folder=folder)
    assert "temp_air" in message
    assert "tmp" in message


def test_good_weather_file_is_used(tmp_path):
    path = weather_file(tmp_path)
    folder = execute(tmp_path / "run", *SHORT, "weather=measured", f"weather.path={path}")
    ambient = data_of(folder, "trajectory")["ambient_temperature"].values
    np.testing.assert_allclose(ambient[::4][:20], 5 + 3 * np.sin(np.arange(20) / 4), atol=0.006)


def stopped(folder, *overrides):
    with pytest.raises(Stopped) as caught:
        execute(folder, *SHORT, *overrides)
    return caught.value


def test_divergence_names_time_and_state_and_stores_what_there_is(tmp_path):
    error = stopped(tmp_path, *DIVERGING)
    assert error.exit_code not in (0, 130)
    for word in ("diverged", "time", "zone", "substeps", str(tmp_path)):
        assert word in str(error)
    trajectory, summary = data_of(tmp_path, "trajectory"), summary_of(tmp_path)
    assert summary["partial"] is True
    assert trajectory.attrs["partial"] == 1
    assert trajectory.sizes["time"] > 0
    assert all(np.isfinite(v).all() for v in trajectory.data_vars.values())


def ending(samples, n, error):
    """The first n samples, then an error instead of the next."""
    for k, sample in enumerate(samples):
        if k == n:
            raise error
        yield sample


def end_at(monkeypatch, n, error):
    """Let the simulation of the next run end with an error after n samples."""
    original = identification.live_source

    def source(config):
        live = original(config)
        live.simulation.samples = ending(live.simulation.samples, n, error)
        return live

    monkeypatch.setattr(identification, "live_source", source)


ENDS = {"initial": 10, "online": 60, "validation": 24 * 4 * DAYS // 2 + 30}  # samples


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ArithmeticError("the plant exploded")], ids=repr)
@pytest.mark.parametrize("phase", ENDS)
def test_a_run_that_ends_early_keeps_what_it_had(phase, error, monkeypatch, tmp_path):
    end_at(monkeypatch, ENDS[phase], error)
    stop = stopped(tmp_path, "figures=true")
    assert stop.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert str(tmp_path) in str(stop)
    summary = summary_of(tmp_path)
    assert summary["partial"] is True
    assert data_of(tmp_path, "trajectory").sizes["time"] == ENDS[phase]
    initial, online, after = phases(data_of(tmp_path, "result"))
    assert initial.sum() == summary["n_initial"]
    assert online.sum() == summary["n_seen"]
    assert after.sum() == summary["n_validation"]
    assert initial.sum() + online.sum() + after.sum() == ENDS[phase] - 3
    assert bool(online.any()) == (phase != "initial")
    assert bool(after.any()) == (phase == "validation")
    names = set(DATA) - ({"model"} if phase == "initial" else set())
    assert {path.stem for path in tmp_path.glob("*.nc")} == names
    assert all(data_of(tmp_path, name).attrs["partial"] == 1 for name in names)
    assert (summary["smse"] is None) == (phase != "validation")


def test_a_partial_run_is_the_beginning_of_the_whole_one(finished, monkeypatch, tmp_path):
    end_at(monkeypatch, ENDS["online"], KeyboardInterrupt())
    stopped(tmp_path)
    part, whole = data_of(tmp_path, "result"), data_of(finished, "result")
    for name in part.data_vars:
        np.testing.assert_array_equal(part[name], whole[name].values[: part.sizes["sample"]])


@pytest.mark.parametrize("phase", ["initial", "online"])
def test_an_interrupt_between_a_sample_and_its_step_loses_nothing(phase, monkeypatch, tmp_path):
    """Ctrl-C may come at any moment, also when a sample is simulated but not yet learned from."""
    from sysid import Identification

    original, calls = Identification.observe_many, []

    def observe_many(self, regressors, targets, *, follows=None):
        calls.append(targets)
        if len(calls) == ENDS[phase]:
            raise KeyboardInterrupt
        return original(self, regressors, targets, follows=follows)

    monkeypatch.setattr(Identification, "observe_many", observe_many)
    assert stopped(tmp_path, "figures=true").exit_code == 130
    summary = summary_of(tmp_path)
    assert summary["partial"] is True
    assert summary["n_validation"] == 0, "a sample of the identified part is no validation sample"
    assert data_of(tmp_path, "trajectory").sizes["time"] >= ENDS[phase] + 2


def test_an_interrupt_while_training_keeps_the_trajectory(monkeypatch, tmp_path):
    from sysid import MaximumLikelihood

    def interrupted(self, inputs, targets, seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(MaximumLikelihood, "train", interrupted)
    assert stopped(tmp_path).exit_code == 130
    assert data_of(tmp_path, "trajectory").sizes["time"] > 10
    assert summary_of(tmp_path)["partial"] is True


def test_a_failing_training_keeps_the_trajectory(monkeypatch, tmp_path):
    from sysid import MaximumLikelihood

    def failing(self, inputs, targets, seed):
        raise np.linalg.LinAlgError("covariance of 40 points is not positive definite")

    monkeypatch.setattr(MaximumLikelihood, "train", failing)
    with pytest.raises(Exception, match="not positive definite"):
        execute(tmp_path, *SHORT)
    assert data_of(tmp_path, "trajectory").sizes["time"] > 10


def test_a_failing_file_does_not_stop_the_others(monkeypatch, tmp_path):
    original = store.write

    def write(dataset, path, *, kind, attributes=None):
        if kind == "narx":
            raise store.StoreError(f"cannot write {path}: no space left")
        return original(dataset, path, kind=kind, attributes=attributes)

    monkeypatch.setattr(store, "write", write)
    with pytest.raises(store.StoreError, match=r"narx\.nc: no space left"):
        execute(tmp_path, *SHORT, "figures=true")
    assert {path.stem for path in tmp_path.glob("*.nc")} == set(DATA) - {"narx"}
    assert len(list(tmp_path.glob("*.png"))) == 4


# the rest needs processes of their own


def started(folder, *overrides):
    """Command in the background, in a session of its own, once it is in its loop."""
    process = subprocess.Popen(
        [*COMMAND, f"hydra.run.dir={folder}", *ENDLESS, *overrides],
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while not (folder / ".hydra" / "overrides.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    begin = time.monotonic()  # imports on this machine now; beside them 36500 days of weather and noise
    subprocess.run([sys.executable, "-c", "import experiments.identification"], cwd=ROOT, check=True, timeout=60)
    time.sleep(3.0 + time.monotonic() - begin)
    assert process.poll() is None, process.communicate()[0]
    return process


def test_ctrl_c_stores_what_was_computed(tmp_path):
    folder = tmp_path / "run"
    process = started(folder, "training.n_initial=20", "budget=20", "duration=7300d")
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "interrupted" in output
    assert str(folder) in output
    assert summary_of(folder)["partial"] is True
    trajectory = store.read(folder / "trajectory.nc", kind="trajectory")
    assert trajectory.attrs["partial"] == 1
    assert 100 < trajectory.sizes["time"] < 96 * 7300
    assert Model.load(folder / "model.nc").gp.n_points == 20
    assert {path.stem for path in folder.glob("*.nc")} == set(DATA)
    assert not list(folder.glob(".*.tmp"))


def test_a_kill_leaves_no_half_file(tmp_path):
    folder = tmp_path / "run"
    process = started(folder)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not [path for path in folder.iterdir() if path.suffix in (".nc", ".json", ".png")]


def test_full_disk_is_named_and_loses_nothing_else(tmp_path):
    """Files may not grow beyond a limit that the summary and the model keep."""
    sizes = {path.name: path.stat().st_size for path in execute(tmp_path / "free", *SHORT).iterdir()}
    kept, lost = {"summary.json", "model.nc"}, {"trajectory.nc", "narx.nc", "result.nc"}
    longer = [o if not o.startswith("duration") else f"duration={2 * DAYS}d" for o in SHORT]
    if max(sizes[name] for name in kept) >= min(sizes[name] for name in lost):
        longer = [o if not o.startswith("duration") else f"duration={8 * DAYS}d" for o in SHORT]
        sizes = {path.name: path.stat().st_size for path in execute(tmp_path / "freer", *longer).iterdir()}
    limit = (max(sizes[name] for name in kept) + min(sizes[name] for name in lost)) // 2
    assert max(sizes[name] for name in kept) < limit < min(sizes[name] for name in lost), sizes
    folder = tmp_path / "full"

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = command(folder, *longer, preexec_fn=limited)
    assert process.returncode == 1, said(process)
    assert "Traceback" not in said(process)
    for name in lost:
        assert f"{folder / name}" in said(process)
    assert "File too large" in said(process)
    assert kept <= {path.name for path in folder.iterdir()}
    assert not lost & {path.name for path in folder.iterdir()}
    assert not list(folder.glob(".*.tmp"))
    Model.load(folder / "model.nc")
    assert summary_of(folder)["partial"] is False


def test_unwritable_folder_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    process = subprocess.run([*COMMAND, f"hydra.run.dir={blocked}/run", *SHORT], **options)
    assert process.returncode != 0
    assert str(blocked) in said(process)
    assert blocked.read_text() == "not a folder"


def test_folder_that_vanishes_is_named(tmp_path):
    """Works for every user, root included: the folder is gone when the results are written."""
    folder = tmp_path / "gone"
    with pytest.raises(store.StoreError) as caught:
        identification.run(configured(*SHORT), folder)
    for name in ("summary.json", *(f"{kind}.nc" for kind in DATA)):
        assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize(("overrides", "key"), [((), "hydra.run.dir"), (("-m", "seed=1,2"), "hydra.sweep.dir")])
def test_a_run_folder_that_cannot_be_made_ends_in_one_line(overrides, key, tmp_path):
    (tmp_path / "file").write_text("")
    process = subprocess.run(
        [*COMMAND, *overrides, f"{key}={tmp_path}/file/run"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith(f"Error: cannot write to the folder of the run {tmp_path}/file/run")
    assert f"set {key}" in line


def test_a_folder_of_the_users_called_conf_does_not_hide_ours(tmp_path):
    (tmp_path / "conf" / "system").mkdir(parents=True)
    (tmp_path / "conf" / "system" / "own.yaml").write_text("_target_: simulators.VanDerPol\n")
    process = subprocess.run(
        [*COMMAND, "--config-dir", "conf", "system=own", "--cfg", "job"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f".{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, said(process)
    assert "simulators.VanDerPol" in process.stdout


@pytest.mark.parametrize(
    ("overrides", "idle"),
    [
        (("system=van_der_pol", "excitation=prbs"), "VanDerPol: excitation=prbs"),
        (("duration=3d", "excited=null"), "Building: excited=null"),
    ],
)
def test_overrides_without_effect_are_told(overrides, idle, tmp_path):
    short = ("training.n_initial=20", "duration=200samples", "figures=false")
    process = command(tmp_path / "run", *short, *overrides)
    assert process.returncode == 0, said(process)
    assert f"Note: without effect on {idle}" in process.stdout
    notes = summary_of(tmp_path / "run")["warnings"]
    assert any(note == f"without effect on {idle}" for note in notes)


def test_what_a_training_brings_itself_is_told(tmp_path):
    quick = ("training.folds=2", "training.routes.0.evaluations=3", "training.routes.1.stages=1")
    short = ("training.n_initial=100", "duration=260samples", "training.routes.1.search_points=10", "figures=false")
    given = ("system=van_der_pol", "training=free_run", "mean=linear", "budget=10", *quick, *short)
    process = command(tmp_path / "run", *given)
    assert process.returncode == 0, said(process)
    assert "Note: without effect on VanDerPol: mean=linear" in process.stdout
    assert "training=adaptive" not in process.stdout


def test_too_few_substeps_are_told(tmp_path):
    """One substep of the building does not diverge while the valve saturates, and is wrong."""
    summaries = {
        substeps: summary_of(execute(tmp_path / str(substeps), *SHORT, f"system.substeps={substeps}"))
        for substeps in (1, 30)
    }
    told = {n: [w for w in summary["warnings"] if "raise system.substeps" in w] for n, summary in summaries.items()}
    assert len(told[1]) == 1
    assert "1 substeps per sample are inaccurate" in told[1][0]
    assert not told[30]


def test_a_stream_without_samples_to_judge_by_still_has_a_score(tmp_path, caplog):
    with caplog.at_level("INFO"):
        execute(tmp_path, *SHORT, "identified=1")
    assert "no samples after it to judge the final model by" in caplog.text
