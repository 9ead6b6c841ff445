"""Pages of runs, sweeps and comparisons: complete, offline, with right numbers and safe names."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from experiments.cli.ends import MISTAKES
from experiments.collect.run import run as collect
from experiments.compare import run as comparison
from experiments.files.identity import identity_of
from experiments.files.job_file import SUMMARY_NUMBERS
from experiments.files.outputs import has_page
from experiments.identify.run import read_settings
from experiments.report import run as report
from helpers.commands import ROOT, compose_configuration, load_summary, read_exact_csv, run_identify
from helpers.records import BOTH_OUTPUTS, ONE_OUTPUT, RECORD_OVERRIDES
from helpers.written_sweeps import SWEPT_VALUES, make_summary, write_sweep
from sysid import StoreError, store

pytest.importorskip("bokeh", reason='pages need Bokeh: pip install -e ".[report]"')

from experiments.collect.page import draw_jobs, join_medians, page_rows
from experiments.collect.read import read_results
from experiments.drawing.page import (
    PAGE_FILE,
    Curve,
    describe_series,
    draw_series,
    read_origin,
    read_pictures,
    thin,
    write,
    write_number,
)
from experiments.drawing.tables import significant
from experiments.report.page import STREAM_NUMBERS, find_points, write_run

#: a name that would run a script, if it were not escaped
EVIL_NAME = "</script><script>hacked=1</script><img src=x onerror=hacked=1>"
MAX_PAGE_BYTES = 5e6
#: attributes by which a page would load something from elsewhere
ADDRESS_ATTRIBUTES = ("src", "href", "data", "action")
BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


class Page(HTMLParser):
    """A page: its tags in their order, addresses, values of tables, and text.

    The text is that outside of scripts and styles. `place_of_warnings` counts the tags up to the
    list of warnings; it is 0 if there is none.
    """

    def __init__(self, path):
        super().__init__()
        self.tags = []
        self.addresses = []
        self.links = []
        self.values = []
        self.text = ""
        self.n_bytes = path.stat().st_size
        self.place_of_warnings = 0
        self.feed(path.read_text())
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if tag == "a":  # loads nothing until it is clicked
            self.links.append(values["href"])
        else:
            self.addresses += [values[name] for name in ADDRESS_ATTRIBUTES if name in values]
        if "data-value" in values:
            self.values.append(values["data-value"])
        if values.get("id") == "warnings" and not self.place_of_warnings:
            self.place_of_warnings = len(self.tags)

    def handle_data(self, data):
        if self.tags and self.tags[-1] not in ("script", "style"):
            self.text += data


def read_page(folder):
    """Return the page of a folder, after checks that hold for all pages."""
    page = Page(folder / PAGE_FILE)
    assert page.n_bytes < MAX_PAGE_BYTES
    assert all(address.startswith("data:image/png") for address in page.addresses)
    assert 0 < page.place_of_warnings < page.tags.index("table")
    return page


@pytest.fixture(scope="module")
def runs(tmp_path_factory, record):
    """Two runs on one record, and one of two outputs, each with its page."""
    folder = tmp_path_factory.mktemp("pages")
    common = (*record, "report=true")
    run_identify(folder / "one", *common, ONE_OUTPUT)
    run_identify(folder / "two", *common, ONE_OUTPUT, "budget=8", "figures=true")
    run_identify(folder / "both", *common, *BOTH_OUTPUTS)
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A collected sweep with a job that failed and one that is missing."""
    folder = tmp_path_factory.mktemp("sweep") / "s"
    values = SWEPT_VALUES | {"reduction": ["prior_entropy", EVIL_NAME]}
    write_sweep(folder, values, make_summary, skip=(1,), fail=(4,))
    config = compose_configuration(
        f"folder={folder}", "figures=false", "report=true", command="collect"
    )
    collect(config, folder)
    return folder


# --- pages of runs


def test_a_page_has_the_numbers_of_the_files(runs):
    folder = runs / "two"
    page = read_page(folder)
    summary = load_summary(folder)
    assert {"smse", "rmse", "nlpd", "n_points"} <= summary.keys()
    assert page.values == [str(summary[name]) for name in SUMMARY_NUMBERS]
    assert all(warning in page.text for warning in summary["warnings"])
    rmse = write_number(summary["rmse"], "V")
    smse = write_number(summary["smse"])
    assert f"RMSE of {rmse}, an SMSE of {smse} (" in page.text
    linear_rmse = write_number(summary["linear"]["same_lags"]["rmse"], "V")
    assert f"has an RMSE of {linear_rmse} one step ahead" in page.text
    assert "hyper-parameters come from samples that are spread over the record" in page.text
    smse_linear = write_number(summary["smse_linear"])
    n_lags = summary["linear_lags"]["after_stream"]
    lags = "1 lag" if n_lags == 1 else f"{n_lags} lags"
    assert f"the best ARX model ({lags} of each signal)" in page.text
    assert f"has an SMSE of {smse_linear} there" in page.text
    free_run = json.loads((folder / "validation.json").read_text())["free_run"]
    assert f"{free_run['fit_percent']:.1f} %" in page.text


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        pytest.param((0.1, 0.2, False), "has an RMSE of 0.1000 V one step ahead and 0.2000 V in"),
        pytest.param((0.1, None, False), "has an RMSE of 0.1000 V one step ahead. The RMSE"),
        pytest.param((None, 0.2, False), "has an RMSE of 0.2000 V in free run."),
        pytest.param((0.1, None, True), "0.1000 V one step ahead and diverges in free run."),
        pytest.param((None, None, True), "nk=1) diverges in free run."),
        pytest.param((None, None, False), None),
    ],
    ids=["both", "one step", "free run", "diverges", "only diverges", "none"],
)
def test_a_page_states_the_errors_of_a_linear_model_in_a_sentence(runs, tmp_path, errors, words):
    names = ("rmse", "free_run_rmse", "free_run_diverges")
    summary = load_summary(runs / "one")
    same_lags = {"na": 1, "nb": 1, "nk": 1, **dict(zip(names, errors, strict=True))}
    summary["linear"] = {"same_lags": same_lags}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    page = Page(write_run(tmp_path))
    assert ("The linear ARX model" in page.text) == (words is not None)
    assert words is None or words in page.text


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("stream", "come from the first 10 samples."),
        ("record", "come from samples that are spread over the record."),
        (None, None),
    ],
)
def test_a_page_states_where_hyper_parameters_come_from(runs, tmp_path, origin, words):
    summary = load_summary(runs / "one") | {"hyperparameters_from": origin, "n_initial": 10}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    page = Page(write_run(tmp_path))
    assert ("hyper-parameters come from" in page.text) == (words is not None)
    assert words is None or words in page.text


def test_a_page_has_the_figures_of_its_run_and_names_its_files(runs):
    folder = runs / "two"
    page = read_page(folder)
    n_figures = len(list(folder.glob("*.png")))
    assert page.tags.count("img") == n_figures > 0
    assert store.read(folder / "model.nc", kind="model").attrs["digest"] in page.text
    assert "summary.json" in page.text


@pytest.mark.parametrize("target", ["y", "z"])
def test_a_page_of_several_outputs_has_all_of_them(runs, target):
    page = read_page(runs / "both")
    assert f"change of {target} over one sample" in page.text
    assert str(load_summary(runs / "both" / target)["smse"]) in page.values


def test_the_words_of_a_page_follow_the_purpose_of_the_model(runs, tmp_path):
    """A run whose summary says that the model was trained at once, for the free run."""
    folder = tmp_path / "simulation"
    shutil.copytree(runs / "two", folder)
    summary = load_summary(folder)
    summary |= {"training": {"tried": []}, "n_seen": 0}
    summary["free_run"]["rmse"] = 0.5 * summary["linear"]["best"]["free_run_rmse"]
    (folder / "summary.json").write_text(json.dumps(summary))
    write_run(folder)
    page = read_page(folder)
    assert "Trained on all samples at once, for simulation" in page.text
    assert "online" not in page.text.partition("Numbers")[0].lower()
    assert "The RMSE of the identified model is 0.50 times as large in free run" in page.text
    assert page.text.index("In free run (simulation)") < page.text.index("predicts one step ahead")
    for name in STREAM_NUMBERS:
        assert f" {name} " not in page.text
    assert len(page.values) == len(SUMMARY_NUMBERS) - len(STREAM_NUMBERS & {*SUMMARY_NUMBERS})


def write_page_with_evil_names(run, folder):
    """Copy a run, put a name that would run a script wherever a name can stand, write its page."""
    shutil.copytree(run, folder)
    summary = load_summary(folder)
    evil_entries = {"system": EVIL_NAME, "target": EVIL_NAME, "warnings": [EVIL_NAME]}
    (folder / "summary.json").write_text(json.dumps(summary | evil_entries))
    (folder / f"{EVIL_NAME.replace('/', '')}.txt").write_text("mine")
    record = store.read(folder / "result.nc", kind="result")
    record["target"].attrs["long_name"] = EVIL_NAME
    record["target"].attrs["units"] = EVIL_NAME
    attributes = {"configuration": EVIL_NAME}
    store.write(record, folder / "result.nc", kind="result", attributes=attributes)
    model = store.read(folder / "model.nc", kind="model")
    features = [f"{EVIL_NAME}{i}" for i in range(model.sizes["feature"])]
    store.write(model.assign_coords(feature=features), folder / "model.nc", kind="model")
    return write_run(folder)


def test_names_are_shown_as_text_whatever_is_in_them(runs, tmp_path):
    normal = read_page(runs / "one")
    path = write_page_with_evil_names(runs / "one", tmp_path / "evil")
    page = Page(path)
    assert page.tags.count("script") == normal.tags.count("script")
    assert page.tags.count("img") == normal.tags.count("img")
    assert page.text.count(EVIL_NAME) == 4, "expected in title, head, output and warning"
    assert path == tmp_path / "evil" / PAGE_FILE
    assert "hacked=1</script>" not in path.read_text()


def test_points_are_those_of_the_model(runs):
    folder = runs / "one"
    record = store.read(folder / "result.nc", kind="result")
    model = store.read(folder / "model.nc", kind="model")
    rows = store.read(folder / "narx.nc", kind="narx")
    points = find_points(record.assign_coords(shown=record["time"]), model)
    assert 0 < points["known"].sum() <= 15
    for i in np.flatnonzero(points["known"]):
        row = np.flatnonzero(rows["time"].values == points["x"][i])[0]
        assert points["y"][i] == rows["target"].values[row]
        for j, name in enumerate(rows["feature"].values):
            np.testing.assert_allclose(
                points[str(name)][i], rows["regressor"].values[row, j], atol=1e-12
            )


# --- options of a sweep that are yes or no


def test_a_page_writes_yes_or_no_as_a_command_line_does():
    rows = pd.DataFrame(
        {
            "job": range(4),
            "link": ["a"] * 4,
            "scale": [True, False, True, False],
            "rmse": [1.0, 2.0, 3.0, 4.0],
        }
    )
    labels = {name: name for name in rows}
    drawn = draw_jobs(rows, ["scale"], ["rmse"], labels)
    assert drawn["filter scale"].options == ["all", "false", "true"]
    columns = drawn["jobs"].renderers[1].data_source.data
    for name in ("scale", "text scale", "legend"):
        assert list(columns[name]) == ["true", "false", "true", "false"]
    assert [name for name, _ in drawn["axis x"].options] == ["rmse"]


# --- series and origins


def test_thinning_keeps_what_stands_out():
    rng = np.random.default_rng(0)
    values, error = rng.normal(size=(2, 10_000))
    values[1234] = 9
    values[4321] = -9
    error[7777] = 9
    rows = thin(values, error, 300)
    assert len(rows) <= 302
    assert {0, 1234, 4321, 7777, 9999} <= set(rows)
    assert (np.diff(rows) > 0).all()


def test_a_short_series_is_not_thinned():
    values, error = np.random.default_rng(0).normal(size=(2, 10_000))
    assert thin(values, error, 10_000).tolist() == list(range(10_000))


def columns_of(figure):
    """Return the columns of the lines and those of the band of a figure of a series."""
    from bokeh.models import VArea

    glyphs = figure.children[0].renderers
    (band,) = [one.data_source.data for one in glyphs if isinstance(one.glyph, VArea)]
    lines = figure.children[1].renderers[-1].data_source.data
    return lines, band


@pytest.mark.parametrize("max_samples", [10_000, 90], ids=["all", "thinned"])
def test_lines_and_bands_of_a_page_end_at_gaps(max_samples):
    x = np.concatenate([np.arange(0.0, 200.0), np.arange(260.0, 500.0)])
    measured = np.sin(x)
    mean = measured + 0.1
    mean[300:320] = np.nan  # after a divergence
    figure = draw_series(
        x,
        measured,
        {"model": Curve(mean, np.full(len(x), 0.2))},
        labels=("t", "y", "e"),
        max_samples=max_samples,
    )
    lines, band = columns_of(figure)
    gap = np.flatnonzero(np.isnan(lines["measured"]))
    assert lines["x"][gap - 1] == 199.0
    assert lines["x"][gap + 1] == 260.0
    for begin, end in ((199.0, 260.0), (x[299], x[320])):
        row = np.searchsorted(band["x"], begin, side="right") - 1  # the last one before the gap
        assert list(band["x"][row : row + 2]) == [begin, end]
        assert list(band["half"][row : row + 2]) == [0.0, 0.0]
    assert np.isfinite(band["low"]).all()
    assert band["half"].max() == pytest.approx(0.2)
    caption = describe_series(figure, predictions="the free run")
    assert "lines are interrupted at gaps" in caption
    assert "ends where there is none" in caption
    assert "missing" not in caption


@pytest.mark.parametrize("curves", [1, 2], ids=["one curve", "two curves"])
@pytest.mark.parametrize("max_samples", [10_000, 60], ids=["all", "thinned"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(None, set(), id="complete"),
        pytest.param("side by side", {"between records"}, id="side by side"),
        pytest.param("missing", {"measurements ends where samples are missing"}, id="missing"),
        pytest.param("diverged", {"where there is none"}, id="diverged"),
        pytest.param("unbounded", {"where there is none"}, id="infinite"),
    ],
)
def test_captions_state_why_lines_end(change, words, max_samples, curves):
    x = np.arange(200.0)
    measured = np.sin(x)
    mean = measured + 0.1
    if change == "side by side":
        x[100:] += 40.0
    if change == "missing":
        measured[50:60] = np.nan
    if change == "diverged":
        mean[150:] = np.nan
    if change == "unbounded":
        mean[150:] = np.inf
    drawn = {f"curve {i}": Curve(mean if i == 0 else np.cos(x), None) for i in range(curves)}
    figure = draw_series(x, measured, drawn, labels=("t", "y", "e"), max_samples=max_samples)
    caption = describe_series(figure, predictions="the free run")
    reasons = {"between records", "measurements ends where samples are missing"}
    reasons |= {"where there is none"}
    assert {reason for reason in reasons if reason in caption} == words


@pytest.mark.parametrize("has_band", [True, False], ids=["band", "no band"])
@pytest.mark.parametrize("has_border", [True, False], ids=["border", "no border"])
@pytest.mark.parametrize("has_points", [True, False], ids=["points", "no points"])
def test_captions_name_only_marks_that_exist(has_band, has_border, has_points):
    x = np.arange(50.0)
    figure = draw_series(
        x,
        np.sin(x),
        {"model": Curve(np.cos(x), np.ones(50) if has_band else None)},
        labels=("t", "y", "e"),
        since=25.0 if has_border else None,
        points={"x": [3.0], "y": [0.0], "entered": [3.0]} if has_points else None,
    )
    caption = describe_series(figure, predictions="the predictions")
    assert ("95 % band" in caption) == has_band
    assert ("Dashed line" in caption) == has_border
    assert ("Green" in caption) == has_points
    assert "missing" not in caption


def test_a_page_of_a_long_record_is_small(tmp_path):
    x = np.arange(200_000.0)
    curve = Curve(np.cos(x), np.full(len(x), 0.1))
    figure = draw_series(x, np.sin(x), {"model": curve}, labels=("t", "y", "e"))
    template = ROOT / "experiments/drawing/page.html"
    write(tmp_path / PAGE_FILE, template, {"record": figure}, title="long")
    assert (tmp_path / PAGE_FILE).stat().st_size < MAX_PAGE_BYTES


def test_nothing_in_the_command_of_a_run_is_resolved(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "hydra.yaml").write_text("hydra: {job: {name: identify}}\n")
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- seed=1\n- name=${oc.env:HOME}\n")
    assert read_origin(tmp_path, {})["command"] == "sysid-identify seed=1 'name=${oc.env:HOME}'"


def write_command(folder, overrides, name="identify"):
    """Write the files of Hydra of a run, and return the command that its page shows."""
    (folder / ".hydra").mkdir(exist_ok=True)
    (folder / ".hydra" / "hydra.yaml").write_text(f"hydra: {{job: {{name: {name}}}}}\n")
    text = overrides if isinstance(overrides, str) else json.dumps(overrides)
    (folder / ".hydra" / "overrides.yaml").write_text(text)
    return read_origin(folder, {})["command"]


@pytest.mark.parametrize("name", [".hydra", ".hydra/hydra.yaml", ".hydra/overrides.yaml"])
def test_a_command_is_not_read_through_a_link(tmp_path, name):
    """Another run of the reader may have an override that nobody else may see."""
    sent = tmp_path / "sent"
    sent.mkdir()
    assert write_command(sent, ["licence=private"]) == "sysid-identify licence=private"
    moved = (sent / name).rename(tmp_path / "elsewhere")
    (sent / name).symlink_to(moved)
    assert read_origin(sent, {})["command"] == ""


@pytest.mark.parametrize(
    "word",
    [
        "a=$(touch hacked)",
        "a=`touch hacked`",
        "a=1; touch hacked",
        "a='1'; touch hacked; '",
        'a=it\'s "$(touch hacked)"',
        "a=1 && touch hacked #",
        "a=\\'; touch hacked; \\'",
        "a=!! | touch hacked",
        "a=${HOME} > hacked",
        "a='b' \\\\",
    ],
)
def test_the_command_of_a_run_is_one_command_with_these_words(tmp_path, word):
    command = write_command(tmp_path, ["seed=1", word])
    shown = subprocess.run(
        ["sh", "-c", command.replace("sysid-identify", "printf '%s\\n'", 1)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == f"seed=1\n{word}\n"
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    "overrides",
    [
        ["a=1\ntouch hacked"],
        ["a=\x15touch hacked\r"],
        ["a=\x1b[201~\ntouch hacked"],
        ["a=\u202etouch"],
        ["--config-dir=elsewhere"],
        ["-cd", "elsewhere"],
        [["a=1"]],
        {"a": 1},
        [1],
        "- &a [x, x]\n- &b [*a, *a]\n- [*b, *b]\n",
        "- !!python/object/apply:os.system [touch hacked]\n",
        "[" * 5000,
        "- 'a",
        "- a" + "b" * 2**20,
    ],
    ids=lambda overrides: repr(overrides)[:30],
)
def test_what_is_no_list_of_overrides_that_can_be_typed_is_no_command(tmp_path, overrides):
    assert write_command(tmp_path, overrides) == ""
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("name", ["a;touch hacked", "{}", "'a b'", "../../bin/sh", "null"])
def test_the_name_of_a_command_is_a_word(tmp_path, name):
    assert write_command(tmp_path, ["a=1"], name) == ""


def link_picture(folder, secret):
    (folder / "a.png").symlink_to(secret)


def copy_other_file(folder, secret):
    shutil.copy(secret, folder / "a.png")


def make_pipe(folder, secret):
    os.mkfifo(folder / "a.png")


def link_device(folder, secret):
    (folder / "a.png").symlink_to("/dev/zero")


@pytest.mark.parametrize("spoil", [link_picture, copy_other_file, make_pipe, link_device])
def test_a_page_embeds_pictures_of_its_folder_only(tmp_path, spoil):
    secret = tmp_path / "secret"
    secret.write_text("a secret of the user")
    folder = tmp_path / "run"
    folder.mkdir()
    spoil(folder, secret)
    assert read_pictures(folder) == ({}, ["a.png"])
    names = [name for name, _, _ in read_origin(folder, {})["files"]]
    assert names == ["a.png"] * (spoil is copy_other_file)


def test_a_page_lists_a_huge_file_without_reading_it(tmp_path):
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2**40)  # without content on the disk
    (tmp_path / "small").write_bytes(b"")
    (tmp_path / "linked").symlink_to(ROOT)
    files = read_origin(tmp_path, {})["files"]
    assert files[0] == ("huge", 2**40, "not computed: too large")
    assert files[1][:2] == ("small", 0)
    assert len(files) == 2


@pytest.mark.parametrize(
    "name", ["summary.json", "result.nc", "model.nc", "validation.json", "validation.nc"]
)
def test_a_page_reads_no_file_through_a_link(runs, tmp_path, name):
    folder = shutil.copytree(runs / "one", tmp_path / "run")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(StoreError, match="is a link, or lies behind one"):
        write_run(folder)


def test_a_page_reads_no_output_through_a_linked_folder(runs, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "y").symlink_to(runs / "one")
    with pytest.raises(StoreError, match="is a link, or lies behind one"):
        write_run(folder)


def test_a_page_is_no_file_behind_a_link(runs, tmp_path):
    folder = shutil.copytree(runs / "one", tmp_path / "run")
    (tmp_path / "profile").write_text("as before")
    (folder / PAGE_FILE).unlink()
    (folder / PAGE_FILE).symlink_to(tmp_path / "profile")
    write_run(folder)
    assert (tmp_path / "profile").read_text() == "as before"


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("summary.json", {"target": None, "warnings": None}),
        ("summary.json", {"warnings": 3}),
        ("summary.json", {"free_run": {"rmse": "many"}}),
        ("summary.json", {"lags": {"tried": 3}}),
        ("summary.json", {"a": json.loads("[" * 200 + "]" * 200)}),
        ("validation.json", {"horizons": []}),
        ("validation.json", []),
    ],
    ids=str,
)
def test_a_page_of_edited_files_is_refused_in_one_line(runs, tmp_path, file, changed):
    folder = shutil.copytree(runs / "one", tmp_path / "run")
    content = json.loads((folder / file).read_text())
    edited = content | changed if isinstance(changed, dict) else changed
    (folder / file).write_text(json.dumps(edited))
    with pytest.raises(MISTAKES):
        report.run(compose_configuration(f"folder={folder}", command="report"), folder)


# --- pages of sweeps


def test_a_page_of_a_sweep_has_its_failed_jobs_and_the_best_one(sweep):
    page = read_page(sweep)
    assert "2 jobs have no result" in page.text
    assert "ValueError: it did not work | twice" in page.text
    table = pd.read_csv(sweep / "sweep.csv")
    best = table.loc[table["smse"].idxmin()]
    description = f"job {best['number']}: error_threshold={best['error_threshold']}"
    assert f"is that of {description}" in page.text


def test_values_in_a_page_of_a_sweep_are_shown_as_text(sweep):
    page = read_page(sweep)
    assert EVIL_NAME in page.text
    assert "hacked=1</script>" not in (sweep / PAGE_FILE).read_text()


# --- whether a page is written


def test_a_page_is_written_by_default_if_a_command_can(monkeypatch):
    assert has_page(True)
    assert has_page(None)
    assert has_page(compose_configuration(command="collect").report)
    monkeypatch.setattr("experiments.files.outputs.find_spec", lambda name: None)
    assert not has_page(None)


def test_a_run_has_no_page_by_default():
    assert not has_page(compose_configuration().report)


@pytest.mark.parametrize(
    ("override", "expected"), [("figures=false", True), ("outputs=lean", False)]
)
def test_a_run_has_a_page_on_request_unless_it_keeps_one_file(override, expected):
    config = compose_configuration("report=true", override)
    assert read_settings(config).files.page == expected


def test_a_report_that_is_no_flag_is_refused():
    with pytest.raises(ValueError, match="report must be true or false"):
        has_page(compose_configuration("report=yes please").report)


def test_a_page_without_bokeh_is_refused(sweep, monkeypatch):
    monkeypatch.setattr("experiments.files.outputs.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=re.escape('pip install -e ".[report]"')):
        has_page(True)
    with pytest.raises(ValueError, match="html needs Bokeh"):
        report.run(compose_configuration(f"folder={sweep}", command="report"), sweep)


def test_a_page_makes_no_other_job():
    assert identity_of("t", {"a": 1, "report": True}, {}) == identity_of("t", {"a": 1}, {})


@pytest.mark.parametrize("folders", ["[a,b]", "null", "''"])
def test_a_page_is_made_of_one_folder(folders):
    configuration = compose_configuration(f"folder={folders}", command="report")
    with pytest.raises(ValueError, match=r"expected the folder of one run or sweep.*got"):
        report.run(configuration, Path())


def test_a_page_of_a_folder_without_a_run_is_refused():
    with pytest.raises(StoreError, match="no run in"):
        write_run(Path("nowhere"))


# --- comparisons


def compare(folder, *runs, **options):
    """Compare runs into a new folder; return the rows of comparison.csv by the name of the run."""
    folder.mkdir()
    given = [f"{name}={value}" for name, value in options.items()]
    named = ",".join(f"'{run}'" for run in runs)
    config = compose_configuration(
        f"runs=[{named}]", "propagation=mean_only", *given, command="compare"
    )
    comparison.run(config, folder)
    return read_exact_csv(folder / "comparison.csv").set_index("run")


@pytest.fixture(scope="module")
def compared(runs, tmp_path_factory):
    """Folder of a comparison of two runs, and its table."""
    folder = tmp_path_factory.mktemp("comparison") / "c"
    return folder, compare(folder, runs / "one", runs / "two")


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_comparison_has_the_numbers_of_the_runs(runs, compared, name):
    _, table = compared
    row = table.loc[name]
    validation = json.loads((runs / name / "validation.json").read_text())
    for kind in ("one_step", "free_run"):
        for key in ("rmse", "nlpd", "coverage_95"):
            assert row[f"{key}_{kind}"] == validation[kind][key]
    assert row["fit_percent_free_run"] == validation["free_run"]["fit_percent"]
    assert row["points"] == load_summary(runs / name)["n_points"]
    assert row["lags"] == "y 1, u 1"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", None),
        ("validation.json", None),
        ("trajectory.nc", None),
        ("validation.json", "{}"),
        ("validation.json", '{"horizons": [{"window": [1]}]}'),
        ("summary.json", "[" * 100_000),
    ],
)
def test_a_comparison_reads_files_of_the_folder_of_a_run_only(runs, tmp_path, name, content):
    folder = shutil.copytree(runs / "one", tmp_path / "run")
    if content is None:
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    else:
        (folder / name).write_text(content)
    with pytest.raises(MISTAKES):
        compare(tmp_path / "c", folder, runs / "two")


def test_a_comparison_prints_the_scores_of_each_run_beside_its_lines(runs, tmp_path, caplog):
    caplog.set_level("INFO")
    compare(tmp_path / "c", runs / "one", runs / "two", figures="false", report="false")
    lines = caplog.text.splitlines()
    start = next(i for i, line in enumerate(lines) if "SMSE of each run" in line)
    assert "limit" in lines[start + 1]
    for name, line in zip(("one", "two"), lines[start + 2 :], strict=False):
        summary = load_summary(runs / name)
        shown = line.split()
        assert significant(summary["smse"]) in shown
        assert significant(summary["smse_linear"]) in shown
        assert "-" in shown, "a record has no limit"


def test_a_comparison_has_a_page_and_a_figure(compared):
    folder, table = compared
    best = table.iloc[0]
    page = read_page(folder)
    assert page.values[:2] == [str(best["rmse_one_step"]), str(best["rmse_free_run"])]
    assert (folder / "comparison.png").is_file()


def test_a_comparison_on_the_named_record_of_the_runs_is_the_same(runs, compared, record, tmp_path):
    _, table = compared
    test_record = next(override for override in record if override.startswith("data.test"))
    options = {
        "data": "csv",
        "data.test": test_record.partition("=")[2],
        "data.inputs": "[u]",
        "data.outputs": "[y]",
        "data.dt": 0.5,
        "data.units": "{y:V}",
        "figures": "false",
    }
    same_table = compare(tmp_path / "d", runs / "one", runs / "two", **options)
    pd.testing.assert_frame_equal(same_table, table)


@pytest.fixture(scope="module")
def runs_with_a_shorter_one(runs):
    """The runs, with a copy of the first, `other`, whose record lacks the last samples."""
    other = runs / "other"
    shutil.copytree(runs / "one", other)
    trajectory = store.read(other / "trajectory.nc", kind="trajectory")
    shorter = trajectory.isel(time=slice(0, -2))
    store.write(shorter, other / "trajectory.nc", kind="trajectory")
    return runs


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["one"], "two or more different"),
        (["one", "one"], "two or more different"),
        (["one", "both"], "of the same outputs"),
        (["one", "."], "no model in"),
        (["one", "other"], r"differ in time: name a record .* data="),
    ],
    ids=["one_run", "twice_the_same", "other_outputs", "no_run", "other_record"],
)
def test_what_cannot_be_compared_is_refused(runs_with_a_shorter_one, tmp_path, names, message):
    folder = tmp_path / "c"
    with pytest.raises((ValueError, StoreError), match=message):
        compare(folder, *(runs_with_a_shorter_one / name for name in names))
    assert not list(folder.iterdir())


def configuration_text(*options, estimation="a.csv", test="b.csv"):
    """Return the configuration of a run on records, as its files keep it."""
    config = compose_configuration(
        *RECORD_OVERRIDES, f"data.estimation={estimation}", f"data.test=[{test}]", *options
    )
    return OmegaConf.to_yaml(config, resolve=True)


@pytest.fixture
def note_differences(monkeypatch):
    """A function that returns the notes on models which did not learn under equal conditions."""
    texts = {
        "one": configuration_text(),
        "other_budget": configuration_text("budget=9", test="c.csv"),
        "other_seed": configuration_text("seed=3"),
        "other_record": configuration_text(estimation="d.csv"),
        "without_configuration": "",
    }
    monkeypatch.setattr(comparison, "header", lambda name: {"configuration": texts[name]})
    return lambda *names: comparison.note_differences({name: name for name in names})


def test_a_comparison_notes_how_the_learning_of_its_models_differed(note_differences):
    assert note_differences("one", "other_budget", "without_configuration") == []
    (note_on_seeds,) = note_differences("one", "other_seed")
    assert "seed (one 0, other_seed 3)" in note_on_seeds
    assert "data" not in note_on_seeds
    (note_on_records,) = note_differences("one", "other_record")
    assert note_on_records.endswith(" data")


def test_numbers_of_several_inputs_are_written_one_by_one():
    assert write_number([7, 1]) == "7, 1"
    assert write_number(0.5, "degC") == "0.5000 \u00b0C"


# --- the page of a sweep


def test_lines_of_a_sweep_join_the_medians_over_the_seeds():
    rng = np.random.default_rng(0)
    table = [(t, r, s) for t in (0.2, 0.05, 0.1) for r in ("a", "b") for s in range(5)]
    rows = pd.DataFrame(table, columns=["threshold", "reduction", "seed"])
    rows = rows.assign(smse=rng.uniform(size=len(rows)), color=rows["reduction"])
    rows.loc[3, "smse"] = np.nan
    lines = join_medians(rows, ["threshold", "reduction", "seed"], "threshold", "smse")
    assert lines["color"] == ["a", "b"]
    for color, xs, ys in zip(lines["color"], lines["xs"], lines["ys"], strict=True):
        assert xs == [0.05, 0.1, 0.2]
        chosen = rows[rows["reduction"] == color]
        expected = [np.nanmedian(chosen["smse"][chosen["threshold"] == x]) for x in xs]
        np.testing.assert_allclose(ys, expected)


def test_the_page_of_a_sweep_names_units_links_jobs_and_has_its_figures(tmp_path):
    folder = write_sweep(tmp_path / "s", SWEPT_VALUES, make_summary)
    configuration = compose_configuration(f"folder={folder}", "report=true", command="collect")
    collect(configuration, folder)
    text = (folder / PAGE_FILE).read_text()
    page = read_page(folder)
    assert "error_threshold [K]" in text
    assert page.links == ["5"] or re.fullmatch(r"\d+(/report.html)?", page.links[0])
    assert page.tags.count("img") == len(list(folder.glob("*.png"))) > 0
    assert "Colours and shapes: reduction." in page.text


def test_times_that_cannot_be_compared_are_not_on_the_page(sweep):
    found = read_results(sweep)
    assert not found.jobs["timed"].all()
    rows = page_rows(found, sweep)
    is_timed = rows["timed"].astype(bool)
    for name in found.measured:
        assert rows.loc[~is_timed, name].isna().all()
        assert rows.loc[is_timed & (rows["status"] == "done"), name].notna().all()


# --- in a browser

#: looks at a page from inside, and writes down what it finds
PROBE = Path(__file__).with_name("probe.html").read_text()
PHONE_STYLE = "<style>body { width: 358px }</style>"
#: words of messages in the console that are harmless: of Bokeh, and of what the probe does
HARMLESS_MESSAGES = ("setting log level", "ResizeObserver", "Canvas2D")
BROWSER_SERVICES = ("background-networking", "component-update", "sync", "quic", "gpu")
LIGHT = "rgb(255, 255, 255)"
DARK = "rgb(20, 24, 28)"


def show_in_browser(path, folder, *, is_phone):
    """Show a page in a browser, bright and wide or on a dark phone.

    Return what the probe finds on it, and the messages in the console.
    """
    folder.mkdir()
    copy = folder / "probed.html"
    copy.write_text(path.read_text() + PROBE + (PHONE_STYLE if is_phone else ""))
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in BROWSER_SERVICES),
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
    ]
    if is_phone:
        command.append("--force-dark-mode")
    command += ["--dump-dom", f"file://{copy}"]
    process = subprocess.run(command, capture_output=True, text=True)
    messages = [
        line
        for line in process.stderr.splitlines()
        if "CONSOLE" in line and not any(words in line for words in HARMLESS_MESSAGES)
    ]
    findings = re.search(r'<pre id="probe">(.*?)</pre>', process.stdout)[1]
    return json.loads(findings), messages


@pytest.fixture(scope="module")
def shown_folders(runs, sweep, tmp_path_factory):
    """Folders with pages that a browser shows, by name."""
    root = tmp_path_factory.mktemp("shown")
    write_page_with_evil_names(runs / "one", root / "evil")
    strange_name = root / "<img src=x onerror=hacked=1>"
    shutil.copytree(runs / "one", strange_name)
    compare(root / "comparison", strange_name, runs / "two")
    return {
        "run": runs / "two",
        "both_outputs": runs / "both",
        "evil_names": root / "evil",
        "comparison": root / "comparison",
        "sweep": sweep,
    }


in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize(
    ("name", "n_plots", "is_phone"),
    [
        pytest.param("run", 7, False, id="run"),
        pytest.param("both_outputs", 14, False, id="both_outputs"),
        pytest.param("evil_names", 7, False, id="evil_names"),
        pytest.param("comparison", 2, False, id="comparison"),
        pytest.param("sweep", 1, False, id="sweep"),
        pytest.param("run", 7, True, id="run_on_a_phone"),
        pytest.param("sweep", 1, True, id="sweep_on_a_phone"),
    ],
)
def test_a_browser_shows_all_plots_of_a_page(shown_folders, tmp_path, name, n_plots, is_phone):
    page = shown_folders[name] / PAGE_FILE
    findings, messages = show_in_browser(page, tmp_path / "shown", is_phone=is_phone)
    assert not messages
    assert findings["failed"] is None
    assert findings["hacked"] is None
    assert findings["page"] == (DARK if is_phone else LIGHT)
    assert findings["width"] <= (390 if is_phone else 800)
    n_drawn = sum(n_coloured_pixels > 200 for n_coloured_pixels in findings["before"])
    assert n_drawn >= n_plots


@pytest.mark.slow
@in_a_browser
def test_a_choice_on_the_page_of_a_sweep_hides_the_other_points(sweep, tmp_path):
    findings, _ = show_in_browser(sweep / PAGE_FILE, tmp_path / "shown", is_phone=True)
    jobs = pd.read_csv(sweep / "sweep.csv").query("status == 'done'")
    lowest = jobs["error_threshold"].min()
    n_chosen = (jobs["error_threshold"] == lowest).sum()
    assert findings["kept"] == n_chosen < len(jobs)
    assert sum(findings["after"]) < 0.8 * sum(findings["before"])
    # another axis, and two jobs selected: these and the others are still there
    assert sum(findings["selected"]) > 0.2 * sum(findings["before"])
