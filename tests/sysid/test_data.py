"""Data sources: every class and its yaml, published sets from local copies, and wrong copies."""

import hashlib
import importlib
import inspect
import pkgutil
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml
from hydra.utils import get_class, instantiate

import sysid.data
from sysid import store
from sysid.data.boston import BostonData
from sysid.data.bouc_wen import BoucWenData
from sysid.data.cascaded_tanks import CascadedTanksData
from sysid.data.concrete import ConcreteData
from sysid.data.published import PublishedTable
from sysid.data.silverbox import SilverboxData
from sysid.data.source import DataError, DataSource
from sysid.narx import Narx
from sysid.recordings import Recordings

CONF = Path(__file__).parents[2] / "conf" / "data"
MODULES = [importlib.import_module(m.name) for m in pkgutil.walk_packages(sysid.data.__path__, "sysid.data.")]
SOURCES = {
    member
    for module in MODULES
    for member in vars(module).values()
    if inspect.isclass(member) and issubclass(member, DataSource) and not inspect.isabstract(member)
}
TABLES = {
    id(member): member for module in MODULES for member in vars(module).values() if isinstance(member, PublishedTable)
}.values()
FORMS = [(table, form) for table in TABLES for form in table.forms]
NODES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("*.yaml"))}
OURS = [name for name, node in NODES.items() if str((node or {}).get("_target_")).startswith("sysid.data.")]
PUBLISHED = [CascadedTanksData, BoucWenData, SilverboxData, BostonData, ConcreteData]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    """Neither local copies nor a cache nor a network."""
    monkeypatch.delenv("SYSID_DATA", raising=False)
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")


def without_defaults(node):
    """Node without Hydra's list of the groups that come with it."""
    return {key: value for key, value in node.items() if key != "defaults"}


def test_every_source_has_a_yaml():
    assert len(SOURCES) >= 8
    assert {get_class(NODES[name]["_target_"]) for name in OURS} == SOURCES


@pytest.mark.parametrize("name", OURS)
def test_every_yaml_makes_a_source_with_the_defaults_of_its_class(name):
    node = without_defaults(NODES[name])
    made = instantiate(node, _convert_="all")
    default = type(made)()
    assert set(node) - {"_target_"} == set(default.__dataclass_fields__)
    for field in default.__dataclass_fields__:
        value = getattr(default, field)
        assert getattr(made, field) == (list(value) if isinstance(value, tuple) else value), field


@pytest.mark.parametrize("source", PUBLISHED)
def test_every_published_set_states_its_terms_and_survives_a_file(source, shared_data, tmp_path):
    loaded = source(path=str(shared_data)).load()
    assert isinstance(loaded, Recordings)
    for record in loaded.records:
        for name in ("licence", "source", "citation", "file", "sha256"):
            assert record.attrs[name], name
        for signal in loaded.inputs + loaded.outputs:
            assert record[signal].attrs["units"]
            assert record[signal].attrs["long_name"]
    path = store.write_groups(loaded.to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    again = Recordings.from_groups(store.read_groups(path, kind="benchmark"))
    assert (again.name, again.inputs, again.outputs) == (loaded.name, loaded.inputs, loaded.outputs)
    for left, right in zip(loaded.records, again.records, strict=True):
        xr.testing.assert_identical(left, right)
    words = inspect.getdoc(source).lower()
    assert "licence" in words
    assert "cite " in words


def test_cascaded_tanks_are_the_published_ones(shared_data):
    tanks = CascadedTanksData(path=str(shared_data)).load()
    (estimation,), (test,) = tanks.estimation, tanks.test
    assert (tanks.inputs, tanks.outputs, tanks.sampling_time) == (("pump_voltage",), ("level",), 4.0)
    assert estimation.sizes["time"] == test.sizes["time"] == 1024
    assert estimation.pump_voltage[0] == 3.2567230505556095
    assert estimation.level[0] == 5.205004959182117
    assert test.pump_voltage[0] == 0.9761919656163469
    assert test.level[0] == 4.972762645914397
    assert float(estimation.level.mean()) == pytest.approx(5.58273, abs=5e-6)
    assert float(test.level.mean()) == pytest.approx(5.73647, abs=5e-6)
    assert estimation.time[-1] == 4092.0
    assert (estimation.attrs["initialisation_window"], test.attrs["initialisation_window"]) == (0, 50)
    older = CascadedTanksData(path=str(shared_data), initialisation_window=5).load()
    assert older.test[0].attrs["initialisation_window"] == 5


def test_bouc_wen_test_is_official_and_estimation_is_not(shared_data):
    records = BoucWenData(path=str(shared_data)).load()
    (estimation,), (test,) = records.estimation, records.test
    assert (test.attrs["official"], estimation.attrs["official"]) == (1, 0)
    assert estimation.attrs["note"].startswith("NOT official")
    assert records.sampling_time == 1 / 750
    assert test.displacement[0] == 1.899147452880088e-4
    assert float(test.displacement.std()) == pytest.approx(6.66939e-4, abs=5e-10)
    assert float(test.force.std()) == pytest.approx(49.9998, abs=5e-5)
    assert estimation.sizes["time"] == 4 * 8192
    force = estimation.force.values.reshape(4, test.attrs["period"])
    np.testing.assert_allclose(force - force[0], 0.0, atol=1e-9)
    displacement = estimation.displacement.values.reshape(4, -1)
    assert np.std(np.diff(displacement, axis=0)) == pytest.approx(1.03e-5, rel=0.02)  # noise, sqrt(2) 7.3e-6 m
    assert BoucWenData(path=str(shared_data), user_made_estimation=False).load().estimation == ()


def test_silverbox_is_split_as_usual(shared_data):
    records = SilverboxData(path=str(shared_data)).load()
    raw = np.loadtxt(shared_data / "silverbox" / "SNLS80mV.csv", delimiter=",", skiprows=1, usecols=(0, 1))
    assert raw[:, 0].mean() == pytest.approx(0.00618171, abs=5e-9)
    multisine = raw[40650:127400]
    n = int(0.75 * len(multisine))
    expected = [multisine[:n], multisine[n:], raw[100:40575], raw[100:40575][:32000]]
    for record, values in zip(records.records, expected, strict=True):
        np.testing.assert_array_equal(record.input_voltage, values[:, 0])
        np.testing.assert_array_equal(record.output_voltage, values[:, 1])
    assert [r.attrs["initialisation_window"] for r in records.records] == [0, 50, 50, 50]
    assert len({r.attrs["name"] for r in records.records}) == 4
    assert records.sampling_time == pytest.approx(1 / 610.35)


@pytest.mark.parametrize(
    ("source", "file", "delimiter", "sizes"),
    [
        (BostonData, "boston_housing/boston_housing.csv", ",", (13, 451, 55)),
        (ConcreteData, "concrete/concrete.csv", ",", (8, 927, 103)),
    ],
)
def test_static_sets_keep_the_order_of_the_file(source, file, delimiter, sizes, shared_data):
    static = source(path=str(shared_data)).load()
    header = (shared_data / file).read_text().splitlines()[0].split(",")
    raw = np.loadtxt(shared_data / file, delimiter=delimiter, skiprows=1)
    assert static.is_static
    assert list(static.inputs + static.outputs) == header
    assert (len(static.inputs), static.estimation[0].sizes["time"], static.test[0].sizes["time"]) == sizes
    joined = xr.concat([*static.estimation, *static.test], "time")
    np.testing.assert_array_equal(joined.row, np.arange(len(raw)))
    for i, name in enumerate(header):
        np.testing.assert_array_equal(joined[name], raw[:, i], err_msg=name)
    np.testing.assert_array_equal(joined.time, np.arange(len(raw)))
    assert joined.time.attrs["units"] == "1"


def test_a_shuffle_is_seeded_and_says_so(shared_data):
    path = str(shared_data)
    plain, one, same, two = (
        BostonData(path=path, shuffle=shuffle, seed=seed).load()
        for shuffle, seed in ((False, 0), (True, 1), (True, 1), (True, 2))
    )
    rows = [np.concatenate([r.row.values for r in static.records]) for static in (plain, one, same, two)]
    np.testing.assert_array_equal(rows[1], rows[2])
    assert not np.array_equal(rows[1], rows[3])
    np.testing.assert_array_equal(np.sort(rows[1]), rows[0])
    in_file = np.concatenate([r.MEDV.values for r in plain.records])
    np.testing.assert_array_equal(np.concatenate([r.MEDV.values for r in one.records]), in_file[rows[1]])
    assert one.test[0].attrs["split"] == "shuffled with seed 1"
    assert plain.test[0].attrs["split"] == "file order"


@pytest.mark.parametrize("n", [0, 506, 600])
def test_a_static_split_leaves_rows_on_both_sides(n, shared_data):
    with pytest.raises(ValueError, match=f"n_estimation from 1 to 505 of 506 rows, got {n}"):
        BostonData(path=str(shared_data), n_estimation=n).load()


def test_every_row_of_a_static_set_becomes_a_sample(shared_data):
    static = ConcreteData(path=str(shared_data)).load()
    narx = Narx(outputs={"strength": []}, inputs={name: [0] for name in static.inputs}, predict="value")
    lags = narx.dataset(static.estimation)
    assert lags.sizes == {"sample": 927, "feature": 8}
    assert lags.time.attrs["units"] == "1"


def test_measured_records_become_lag_data(shared_data):
    tanks = CascadedTanksData(path=str(shared_data)).load()
    lags = Narx(outputs={"level": [1, 2]}, inputs={"pump_voltage": [1, 2]}).dataset(tanks.estimation)
    assert lags.sizes["sample"] == 1022
    assert lags.attrs["sampling_time"] == 4.0


@pytest.mark.parametrize(("table", "form"), FORMS, ids=lambda value: getattr(value, "folder", None) or str(value))
def test_every_form_of_a_table_holds_the_same_numbers(table, form, shared_data, tmp_path):
    """Each form alone in a folder is found; all agree, up to the 5 digits of one of them."""
    for file in form.files:
        shutil.copy(shared_data / table.folder / file.name, tmp_path)
    columns, attributes = table.load(str(tmp_path))
    reference, _ = table.load(str(shared_data))
    assert attributes["file"] == str(form)
    assert list(columns) == list(reference)
    for name, values in columns.items():
        tolerance = 5e-5 if form.files[0].name == "dataBenchmark.csv" else 0.0
        np.testing.assert_allclose(values, reference[name], rtol=0, atol=tolerance, err_msg=name)
        assert values.dtype == np.float64
        assert values.flags.c_contiguous


def test_the_stated_addresses_are_pinned():
    for _, form in FORMS:
        for file in form.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            if file.url:
                host, owner, repository, commit, *_ = file.url.removeprefix("https://").split("/")
                assert host == "raw.githubusercontent.com"
                assert owner
                assert repository
                assert len(bytes.fromhex(commit)) == 20
                assert file.url.endswith("/" + file.name)
    assert all(any(form.is_downloadable for form in table.forms) for table in TABLES)


def test_the_folder_may_be_that_of_the_set_or_the_one_around_it(shared_data):
    for folder in (shared_data, shared_data / "cascaded_tanks"):
        assert CascadedTanksData(path=str(folder)).load().estimation[0].sizes["time"] == 1024


def test_the_environment_names_a_folder(shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    assert CascadedTanksData().load().estimation[0].sizes["time"] == 1024


def test_the_path_wins_over_the_environment(shared_data, monkeypatch, tmp_path):
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "missing"))
    assert CascadedTanksData(path=str(shared_data)).load().name == "cascaded_tanks"
    with pytest.raises(DataError, match=r"SYSID_DATA='.*missing' is no folder"):
        CascadedTanksData().load()


@pytest.mark.parametrize("source", PUBLISHED)
def test_a_named_folder_without_the_files_is_an_error_that_says_what_to_do(source, tmp_path):
    with pytest.raises(DataError, match=r"holds no copy; put .* into a folder") as caught:
        source(path=str(tmp_path)).load()
    for word in (str(tmp_path), "data.path", "SYSID_DATA"):
        assert word in str(caught.value)
    with pytest.raises(DataError, match="is no folder"):
        source(path=str(tmp_path / "missing")).load()


@pytest.mark.parametrize("source", PUBLISHED)
def test_without_copy_and_network_the_error_says_what_to_do(source, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "empty"))
    with pytest.raises(DataError, match="no local copy") as caught:
        source().load()
    for word in ("raw.githubusercontent.com", "Connect to the network", "data.path", "SYSID_DATA", "SYSID_CACHE"):
        assert word in str(caught.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_changed_copy_is_refused_with_both_checksums(shared_data, tmp_path):
    changed = tmp_path / "dataBenchmark.csv"
    changed.write_bytes((shared_data / "cascaded_tanks" / changed.name).read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(
        DataError, match=r"dataBenchmark\.csv has sha256 .* expected ef2388ed.*other line ends"
    ) as caught:
        CascadedTanksData(path=str(tmp_path)).load()
    assert hashlib.sha256(changed.read_bytes()).hexdigest() in str(caught.value)


def test_a_copy_cut_short_is_refused(shared_data, tmp_path):
    for name in ("uval_multisine.mat", "yval_multisine.mat"):
        shutil.copy(shared_data / "bouc_wen" / name, tmp_path)
    with open(tmp_path / "yval_multisine.mat", "r+b") as file:
        file.truncate(1000)
    with pytest.raises(DataError, match=r"yval_multisine\.mat has sha256 .*\(cut short"):
        BoucWenData(path=str(tmp_path)).load()


def test_a_missing_package_is_named(shared_data, tmp_path, monkeypatch):
    shutil.copy(shared_data / "concrete" / "Concrete_Data.xls", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "xlrd", None)
    with pytest.raises(DataError, match=r"reading Concrete_Data\.xls needs the package xlrd.*sysid\[records\]"):
        ConcreteData(path=str(tmp_path)).load()
