"""The folder of a single run: a second command in it is refused, and the first loses nothing."""

import errno
import fcntl

import pytest

from experiments.cli.run_folder import FolderInUseError, hold, remove_unused
from helpers.commands import run_command

SETTINGS = {".hydra/overrides.yaml": "- seed=1\n", ".hydra/config.yaml": "seed: 1\n"}


@pytest.fixture
def folder(tmp_path):
    """Folder of a run that has just begun: it holds what Hydra writes before the run."""
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    for name, text in SETTINGS.items():
        (tmp_path / "run" / name).write_text(text)
    (tmp_path / "run" / "identify.log").write_text("")
    return tmp_path / "run"


def run_in(folder, *arguments, command="identify"):
    """Run a command with this folder, from the folder above it."""
    return run_command(command, f"hydra.run.dir={folder}", *arguments, cwd=folder.parent)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("identify", ["seed=2"]),
        ("identify", ["budget=-3"]),  # such a run removes a folder in which nothing is
        ("validate", ["model=missing.nc"]),
        ("export", ["model=missing.nc"]),
        ("generate", ["output=new"]),
        ("reproduce", []),
    ],
)
def test_a_second_command_in_the_folder_is_refused(command, arguments, folder):
    with hold(folder):
        result = run_in(folder, *arguments, command=command)
        assert result.code == 1
        (line,) = (result.out + result.err).splitlines()
        assert f"another command writes into {folder}" in line
        assert "hydra.run.dir" in line
        assert folder.is_dir()
    assert {name: (folder / name).read_text() for name in SETTINGS} == SETTINGS
    assert not (folder.parent / "new").exists()


def test_the_next_command_gets_the_folder_whatever_ended_the_first(folder):
    with pytest.raises(KeyboardInterrupt), hold(folder):
        raise KeyboardInterrupt
    result = run_in(folder, "budget=-3")
    assert "budget must be" in result.out + result.err


def test_a_run_that_was_refused_leaves_no_folder(tmp_path):
    result = run_in(tmp_path / "new", "budget=-3")
    assert result.code == 1
    assert not (tmp_path / "new").exists()


def test_a_file_system_that_cannot_lock_folders_stops_no_run(folder, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold(folder), hold(folder):
        pass


def test_the_working_folder_is_for_many_commands(folder, monkeypatch):
    with hold(folder):
        monkeypatch.chdir(folder)
        with hold(folder):
            pass


def test_a_folder_that_is_held_is_held_under_each_of_its_names(folder):
    (folder.parent / "link").symlink_to(folder)
    with (
        hold(folder),
        pytest.raises(FolderInUseError, match="another command"),
        hold(folder.parent / "link"),
    ):
        pass


def test_a_folder_that_has_vanished_is_not_removed_again(tmp_path):
    remove_unused(tmp_path / "vanished", "identify.log")
    assert not (tmp_path / "vanished").exists()
