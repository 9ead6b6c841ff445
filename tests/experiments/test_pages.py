"""Pages of runs, sweeps and comparisons: whole, offline, right numbers, harmless names; and in a
browser.
"""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

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

from experiments.drawing.page import (
    PAGE_FILE,
    Curve,
    draw_series,
    read_origin,
    thin,
    write,
    write_number,
)
from experiments.report.page import find_points, write_run

EVIL = "</script><script>hacked=1</script><img src=x onerror=hacked=1>"
BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


class Page(HTMLParser):
    """What a page holds: tags in their order, addresses, values of tables, text outside of scripts
    and styles.
    """

    def __init__(self, path):
        super().__init__()
        self.tags, self.addresses, self.values, self.text, self.size = (
            [],
            [],
            [],
            "",
            path.stat().st_size,
        )
        self.notes = 0
        self.feed(path.read_text())
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        own = dict(attributes)
        self.tags.append(tag)
        self.addresses += [own[name] for name in ("src", "href", "data", "action") if name in own]
        self.values += [own["data-value"]] if "data-value" in own else []
        self.notes = self.notes or len(self.tags) * (own.get("id") == "warnings")

    def handle_data(self, data):
        self.text += data if self.tags and self.tags[-1] not in ("script", "style") else ""


def read_page(folder):
    """The page of a folder, after the checks that hold for all."""
    page = Page(folder / PAGE_FILE)
    assert page.size < 5e6
    assert all(address.startswith("data:image/png") for address in page.addresses)
    assert 0 < page.notes < page.tags.index("table")
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
    write_sweep(
        folder,
        SWEPT_VALUES | {"reduction": ["prior_entropy", EVIL]},
        make_summary,
        skip=(1,),
        fail=(4,),
    )
    collect(
        compose_configuration(
            f"folder={folder}", "figures=false", "report=true", command="collect"
        ),
        folder,
    )
    return folder


def test_a_page_says_what_the_files_say(runs):
    page = read_page(runs / "two")
    summary = load_summary(runs / "two")
    assert {"smse", "rmse", "nlpd", "n_points"} <= summary.keys()
    assert page.values == [str(summary[name]) for name in SUMMARY_NUMBERS]
    assert all(text in page.text for text in summary["warnings"])
    assert (
        f"RMSE of {write_number(summary['rmse'], 'V')}, an SMSE of {write_number(summary['smse'])} ("
        in page.text
    )
    assert (
        f"has {write_number(summary['linear']['same_lags']['rmse'], 'V')} one step ahead"
        in page.text
    )
    assert page.tags.count("img") == len(list((runs / "two").glob("*.png"))) > 0
    digest = store.read(runs / "two" / "model.nc", kind="model").attrs["digest"]
    assert digest in page.text
    assert "summary.json" in page.text
    free_run = json.loads((runs / "two" / "validation.json").read_text())["free_run"]
    assert f"{free_run['fit_percent']:.1f} %" in page.text


def test_a_page_of_several_outputs_has_all_of_them(runs):
    page = read_page(runs / "both")
    for target in ("y", "z"):
        assert f"change of {target} over one sample" in page.text
        assert str(load_summary(runs / "both" / target)["smse"]) in page.values


def test_names_of_strangers_are_text(runs, tmp_path):
    folder = tmp_path / "evil"
    shutil.copytree(runs / "one", folder)
    summary = load_summary(folder)
    (folder / "summary.json").write_text(
        json.dumps(summary | {"system": EVIL, "target": EVIL, "warnings": [EVIL]})
    )
    (folder / f"{EVIL.replace('/', '')}.txt").write_text("mine")
    record, model = (store.read(folder / f"{kind}.nc", kind=kind) for kind in ("result", "model"))
    record["target"].attrs["long_name"] = record["target"].attrs["units"] = EVIL
    store.write(record, folder / "result.nc", kind="result", attributes={"configuration": EVIL})
    model = model.assign_coords(feature=[f"{EVIL}{i}" for i in range(model.sizes["feature"])])
    store.write(model, folder / "model.nc", kind="model")
    normal = read_page(runs / "one")
    page = Page(write_run(folder))
    assert page.tags.count("script") == normal.tags.count("script")
    assert page.tags.count("img") == normal.tags.count("img")
    assert page.text.count(EVIL) == 4  # title, head, output, warning
    assert "hacked=1</script>" not in (folder / PAGE_FILE).read_text()


def test_points_are_those_of_the_model(runs):
    record, model = (
        store.read(runs / "one" / f"{kind}.nc", kind=kind) for kind in ("result", "model")
    )
    rows = store.read(runs / "one" / "narx.nc", kind="narx")
    found = find_points(record.assign_coords(shown=record["time"]), model)
    assert 0 < found["known"].sum() <= 15
    for i in np.flatnonzero(found["known"]):
        (row,) = np.flatnonzero(rows["time"].values == found["x"][i])[:1]
        assert found["y"][i] == rows["target"].values[row]
        for j, name in enumerate(rows["feature"].values):
            np.testing.assert_allclose(
                found[str(name)][i], rows["regressor"].values[row, j], atol=1e-12
            )


def test_thinning_keeps_what_stands_out():
    rng = np.random.default_rng(0)
    values, error = rng.normal(size=(2, 10_000))
    values[1234], values[4321], error[7777] = 9, -9, 9
    rows = thin(values, error, 300)
    assert len(rows) <= 302
    assert {0, 1234, 4321, 7777, 9999} <= set(rows)
    assert (np.diff(rows) > 0).all()
    assert thin(values, error, 10_000).tolist() == list(range(10_000))


def test_a_page_of_a_long_record_is_small(tmp_path):
    x = np.arange(200_000.0)
    curve = Curve(np.cos(x), np.full(len(x), 0.1))
    figure = draw_series(x, np.sin(x), {"model": curve}, labels=("t", "y", "e"))
    write(
        tmp_path / PAGE_FILE,
        ROOT / "experiments/drawing/page.html",
        {"record": figure},
        title="long",
    )
    assert (tmp_path / PAGE_FILE).stat().st_size < 5e6


def test_a_page_of_a_sweep_has_failed_jobs_first_and_the_best(sweep):
    page = read_page(sweep)
    assert "2 jobs have no result" in page.text
    assert EVIL in page.text
    assert "hacked=1</script>" not in (sweep / PAGE_FILE).read_text()
    assert "ValueError: it did not work | twice" in page.text
    table = pd.read_csv(sweep / "sweep.csv")
    best = table.loc[table["smse"].idxmin()]
    assert (
        f"is that of job {best['number']}: error_threshold={best['error_threshold']}" in page.text
    )


def test_the_command_of_a_stranger_is_shown_and_nothing_in_it_is_resolved(tmp_path):
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "hydra.yaml").write_text("hydra: {job: {name: identify}}\n")
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- seed=1\n- name=${oc.env:HOME}\n")
    assert read_origin(tmp_path, {})["command"] == "sysid-identify seed=1 'name=${oc.env:HOME}'"


def test_a_page_is_written_where_it_is_wanted(sweep, monkeypatch):
    assert not has_page(compose_configuration().report)
    assert has_page(True)
    assert has_page(None)
    assert has_page(compose_configuration(command="collect").report)
    for overrides, expected in (("figures=false", True), ("outputs=lean", False)):
        assert read_settings(compose_configuration("report=true", overrides)).files.page == expected
    with pytest.raises(ValueError, match="report must be true or false"):
        has_page(compose_configuration("report=yes please").report)
    monkeypatch.setattr("experiments.files.outputs.find_spec", lambda name: None)
    assert not has_page(None)
    with pytest.raises(ValueError, match=re.escape('pip install -e ".[report]"')):
        has_page(True)
    with pytest.raises(ValueError, match="html needs Bokeh"):
        report.run(compose_configuration(f"folder={sweep}", command="report"), sweep)
    assert identity_of("t", {"a": 1, "report": True}, {}) == identity_of("t", {"a": 1}, {})
    with pytest.raises(StoreError, match="no run in"):
        write_run(Path("nowhere"))


# --- comparisons


def compare(folder, *runs, **options):
    folder.mkdir()
    given = [f"{name}={value}" for name, value in options.items()]
    named = ",".join(f"'{run}'" for run in runs)
    comparison.run(
        compose_configuration(
            f"runs=[{named}]", "propagation=mean_only", *given, command="compare"
        ),
        folder,
    )
    return read_exact_csv(folder / "comparison.csv").set_index("run")


def test_a_comparison_has_the_numbers_of_the_runs(runs, record, tmp_path):
    table = compare(tmp_path / "c", runs / "one", runs / "two")
    for name, row in table.iterrows():
        content = json.loads((runs / name / "validation.json").read_text())
        for kind in ("one_step", "free_run"):
            for key in ("rmse", "nlpd", "coverage_95"):
                assert row[f"{key}_{kind}"] == content[kind][key]
        assert row["fit_percent_free_run"] == content["free_run"]["fit_percent"]
        assert row["points"] == load_summary(runs / name)["n_points"]
        assert row["lags"] == "y 1, u 1"
    page = read_page(tmp_path / "c")
    assert page.values[:2] == [
        str(table.iloc[0]["rmse_one_step"]),
        str(table.iloc[0]["rmse_free_run"]),
    ]
    assert (tmp_path / "c" / "comparison.png").is_file()
    test = next(one for one in record if one.startswith("data.test")).partition("=")[2]
    given = {
        "data": "csv",
        "data.test": test,
        "data.inputs": "[u]",
        "data.outputs": "[y]",
        "data.dt": 0.5,
    }
    same = compare(tmp_path / "d", runs / "one", runs / "two", **given, **{"data.units": "{y:V}"})
    pd.testing.assert_frame_equal(same, table)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["one"], "two or more different"),
        (["one", "one"], "two or more different"),
        (["one", "both"], "of the same outputs"),
        (["one", "."], "no model in"),
        (["one", "other"], r"differ in time: name a record .* data="),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, tmp_path, names, words):
    if "other" in names and not (runs / "other").exists():
        shutil.copytree(runs / "one", runs / "other")
        trajectory = store.read(runs / "other" / "trajectory.nc", kind="trajectory")
        store.write(
            trajectory.isel(time=slice(0, -2)),
            runs / "other" / "trajectory.nc",
            kind="trajectory",
        )
    with pytest.raises((ValueError, StoreError), match=words):
        compare(tmp_path / "c", *(runs / name for name in names))
    assert not list((tmp_path / "c").iterdir())


def test_a_comparison_says_what_its_models_did_not_learn_alike(monkeypatch):
    def text(*options, estimation="a.csv", test="b.csv"):
        given = (
            *RECORD_OVERRIDES,
            f"data.estimation={estimation}",
            f"data.test=[{test}]",
            *options,
        )
        return OmegaConf.to_yaml(compose_configuration(*given), resolve=True)

    texts = {
        "one": text(),
        "two": text("budget=9", test="c.csv"),
        "three": text("seed=3"),
        "own": "",
    }
    texts["four"] = text(estimation="d.csv")
    monkeypatch.setattr(comparison, "header", lambda name: {"configuration": texts[name]})

    def notes(*names):
        return comparison.note_differences({name: name for name in names})

    assert notes("one", "two", "own") == []
    (seeds,), (records,) = notes("one", "three"), notes("one", "four")
    assert "seed (one 0, three 3)" in seeds
    assert "data" not in seeds
    assert records.endswith(" data")


# --- in a browser

#: what looks at a page from inside, and writes down what it finds
PROBE = Path(__file__).with_name("probe.html").read_text()


def look(path, folder, *, is_phone):
    """What a browser finds on a page, bright and wide or on a dark phone, and what it says in its
    console.
    """
    folder.mkdir()
    copy = folder / "probed.html"
    copy.write_text(path.read_text() + PROBE + "<style>body { width: 358px }</style>" * is_phone)
    quiet = ("background-networking", "component-update", "sync", "quic", "gpu")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{name}" for name in quiet),
    ]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
    ]
    command += ["--force-dark-mode"] * is_phone
    done = subprocess.run(
        [*command, "--dump-dom", f"file://{copy}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    harmless = (
        "setting log level",
        "ResizeObserver",
        "Canvas2D",
    )  # of Bokeh, and of what the probe does
    said = [
        line
        for line in done.stderr.splitlines()
        if "CONSOLE" in line and not any(one in line for one in harmless)
    ]
    return json.loads(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)[1]), said


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium")
def test_a_browser_shows_the_pages(runs, sweep, tmp_path):
    test_names_of_strangers_are_text(runs, tmp_path)
    strange = tmp_path / "<img src=x onerror=hacked=1>"
    shutil.copytree(runs / "one", strange)
    compare(tmp_path / "c", strange, runs / "two")
    pages = {
        runs / "two": 7,
        runs / "both": 14,
        tmp_path / "evil": 7,
        tmp_path / "c": 2,
        sweep: 1,
    }
    for number, (folder, is_phone) in enumerate(
        [*product(pages, [False]), *product((runs / "two", sweep), [True])]
    ):
        found, said = look(folder / PAGE_FILE, tmp_path / str(number), is_phone=is_phone)
        assert not said
        assert found["failed"] is found["hacked"] is None
        assert found["page"] == ("rgb(20, 24, 28)" if is_phone else "rgb(255, 255, 255)")
        assert found["width"] <= (390 if is_phone else 800)
        assert sum(n > 200 for n in found["before"]) >= pages[folder]
    table = pd.read_csv(sweep / "sweep.csv").query("status == 'done'")
    assert (
        found["kept"]
        == (table["error_threshold"] == table["error_threshold"].min()).sum()
        < len(table)
    )
    assert sum(found["after"]) < 0.8 * sum(found["before"])  # so many points are left
