"""Every row of `refusals.yaml` ends in a message that names the mistake, and nothing is written."""

import os
import re

import pytest
from omegaconf import OmegaConf

from experiments.benchmark import run as benchmark
from experiments.cli.ends import is_mistake
from experiments.compare import run as compare
from experiments.generate import run as benchmark_run
from experiments.reproduce import run as reproduce
from experiments.sweeps import search
from experiments.sweeps.composer import Composer
from helpers.benchmarks import BOUC_WEN, generate
from helpers.commands import (
    REFUSALS,
    SHORT_RUN,
    compose_configuration,
    run_command,
    run_identify,
)
from helpers.records import (
    ONE_STEP_ONLY,
    csv_overrides,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from helpers.sweeps import ENGINE_CLASSES, load_sweep_configuration

COMMAND_LINES = REFUSALS["command line"]
#: of the lines that go through all of a command, by default every other one
CASES_OF_COMMAND_LINES = [
    pytest.param(line, words, id=line, marks=pytest.mark.slow if number % 2 else ())
    for number, (line, words) in enumerate(COMMAND_LINES.items())
]


@pytest.mark.parametrize(("overrides", "words"), CASES_OF_COMMAND_LINES)
def test_a_mistake_on_the_command_line_ends_in_a_message(overrides, words, tmp_path):
    (tmp_path / "file").write_text("")
    arguments = [*SHORT_RUN, *overrides.format(tmp_path).split()]
    names_folder = "hydra" in overrides
    if not names_folder:
        arguments.insert(0, f"hydra.run.dir={tmp_path}/run")
    arguments.sort(key=lambda argument: argument != "-m")  # -m comes first
    result = run_command("identify", *arguments)
    text = result.out + result.err
    assert result.code == 1
    assert "Traceback" not in text
    assert "HYDRA_FULL_ERROR" not in text
    assert "HYDRA_FULL_ERROR" not in os.environ
    assert all(word in text for word in words), text
    if overrides.startswith("-m"):
        assert text.count("\n") == 1
    assert (tmp_path / "file").read_text() == ""
    has_partial_results = "Partial results are in" in words
    assert (tmp_path / "run").exists() == has_partial_results, "nothing is left of a refused run"


#: groups of rows that other tests, or the one above, run
RUN_ELSEWHERE = ("command line", "search", "collect")
ROWS = [
    pytest.param(command, overrides, words, id=f"{command} {overrides}")
    for command in REFUSALS
    if command not in RUN_ELSEWHERE
    for overrides, words in REFUSALS[command].items()
]
#: a short run that leaves the choice of the insertion to a row
ANY_INSERTION = [text for text in SHORT_RUN if not text.startswith("insertion")]


@pytest.fixture(scope="module")
def validation(tmp_path_factory):
    """Overrides of a validation of a small model."""
    folder = tmp_path_factory.mktemp("validation")
    model = save_models(folder / "model.nc")
    test = write_record(folder / "test.csv")
    return [*validation_overrides(model, test), *ONE_STEP_ONLY]


@pytest.fixture(scope="module")
def two_records(tmp_path_factory):
    """Overrides that estimate from two records."""
    folder = tmp_path_factory.mktemp("records")
    first = write_record(folder / "40.csv", n=40)
    second = write_record(folder / "31.csv", n=31)
    return csv_overrides(estimation=f"[{first},{second}]")


@pytest.fixture(scope="module")
def composer(loader):
    """Composer of the jobs of a sweep."""
    return Composer(loader, load_sweep_configuration(loader))


def validate(folder, validation, overrides):
    """Run a validation; what a row says about the data replaces what it would contradict."""
    kept = validation
    if overrides[0].startswith("data="):
        kept = [text for text in kept if not text.startswith("data")]
    if overrides[0].startswith(("data.inputs", "data.outputs")):
        kept = [text for text in kept if not text.startswith("data.units")]
    run_validate(folder, *kept, *overrides)


def settings_of(overrides):
    """Return overrides as the arguments of a class."""
    return OmegaConf.to_container(OmegaConf.from_dotlist(overrides))


def run_row(command, overrides, folder, request):
    """Do what a row names, with its overrides."""
    match command:
        case "identify":
            run_identify(folder, *ANY_INSERTION, *overrides)
        case "records":
            records = request.getfixturevalue("two_records")
            run_identify(folder, *ANY_INSERTION, *records, *overrides)
        case "validate":
            validate(folder, request.getfixturevalue("validation"), overrides)
        case "generate" if overrides[0].startswith("output="):
            benchmark_run.run(compose_configuration(*overrides, command="generate"), folder)
        case "generate":
            generate(folder / "bw", *BOUC_WEN, *overrides)
        case "compare":
            compare.run(compose_configuration(*overrides, command="compare"), folder)
        case "benchmark":
            benchmark.run(compose_configuration(*overrides, command="benchmark"), folder)
        case "reproduce":
            reproduce.run(compose_configuration(*overrides, command="reproduce"), folder)
        case "job":
            request.getfixturevalue("composer").job(overrides)
        case "joblib" | "dask" | "slurm":
            ENGINE_CLASSES[command](folder, **settings_of(overrides))
        case "optuna":
            search.Settings(**settings_of(overrides))
        case "space":
            search.space_of(overrides, ["seed"], request.getfixturevalue("loader"))
        case _:
            pytest.fail(f"no test runs the rows of {command}")


@pytest.mark.parametrize(("command", "overrides", "words"), ROWS)
def test_a_refusal_names_the_mistake_and_nothing_is_done(
    command, overrides, words, request, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if command in ("optuna", "space"):
        pytest.importorskip("optuna")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run_row(command, overrides.split(), tmp_path, request)
    error = caught.value
    assert is_mistake(error), f"{type(error)} would end in a traceback"
    assert re.search(words, f"{error} {error.__cause__ or ''}", re.DOTALL), error
    if command == "job":
        assert "\n" not in str(error)
    assert not list(tmp_path.iterdir())
