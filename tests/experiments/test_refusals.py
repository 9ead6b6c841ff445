"""What the commands refuse: every row of `refusals.yaml` ends in an error with its words, and nothing is written."""

import re
from pathlib import Path

import pytest
import yaml
from generating import BOUC_WEN, generate
from running import SHORT, configured, execute
from validating import QUICK, csv_file, recorded, saved, validate

from experiments import reproduction
from experiments.benchmarks import session

TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())
LEARNED = [one for one in SHORT if not one.startswith("insertion")]
ROWS = [(command, *row) for command, table in TABLE.items() for row in table.items()]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Overrides of a validation of a small model, and of an identification of two records."""
    folder = tmp_path_factory.mktemp("files")
    first, second = (csv_file(folder / f"{n}.csv", n=n) for n in (40, 31))
    own = ("data=csv", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.5", f"data.estimation=[{first},{second}]")
    return [*recorded(saved(folder / "model.nc"), csv_file(folder / "test.csv")), *QUICK], own


@pytest.mark.parametrize(("command", "overrides", "words"), ROWS, ids=[" ".join(row[:2]) for row in ROWS])
def test_what_is_refused_is_named_and_nothing_is_written(command, overrides, words, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given, (fitting, records) = overrides.split(), files
    if given[0].startswith("data="):
        fitting = [one for one in fitting if not one.startswith("data")]
    if given[0].startswith(("data.inputs", "data.outputs")):
        fitting = [one for one in fitting if not one.startswith("data.units")]
    run = {
        "identify": lambda folder: execute(folder, *LEARNED, *given),
        "records": lambda folder: execute(folder, *LEARNED, *records, *given),
        "validate": lambda folder: validate(folder, *fitting, *given),
        "benchmark": lambda folder: session.run(configured(*given, command="benchmark"), folder),
        "reproduce": lambda folder: reproduction.run(configured(*given, command="reproduce"), folder),
        "generate": lambda folder: generate(folder / "bw", *BOUC_WEN, *given),
    }
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run[command](tmp_path)
    assert isinstance(caught.value, ValueError | TypeError | OSError) or "omegaconf" in type(caught.value).__module__
    assert re.search(words, f"{caught.value} {caught.value.__cause__ or ''}", re.DOTALL), caught.value
    assert not list(tmp_path.iterdir())
