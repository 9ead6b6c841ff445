"""Closed standard streams, characters that they cannot encode, and folders that take no files."""

import io
import logging
import os
import sys

import pytest

from experiments.cli.process import complete_standard_streams, warn_of_code_of_others
from experiments.cli.terminal import PrintableMessages, printable
from helpers.commands import run_command


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_stream_takes_what_nobody_reads(name, monkeypatch):
    monkeypatch.setattr(sys, name, None)
    complete_standard_streams()
    stream = getattr(sys, name)
    print("größe \udcff", file=stream, flush=True)
    stream.close()


@pytest.mark.parametrize("text", ["größe", "日", "\udcff"])
def test_a_stream_takes_characters_that_it_cannot_encode(text, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    complete_standard_streams()
    print(f"Error: {text}", flush=True)
    assert written.getvalue().startswith(b"Error: ")
    assert b"\\" in written.getvalue()


def test_the_number_of_a_closed_stream_goes_to_nothing_else(monkeypatch):
    opened = []

    def fstat(number):
        if number == 2:
            raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fstat)
        patched.setattr(os, "open", lambda path, flags: opened.append(path))
        complete_standard_streams()
    assert opened == [os.devnull]


@pytest.mark.parametrize(
    ("mode", "owner", "is_noted"),
    [(0o755, 0, False), (0o775, 0, False), (0o777, 0, True), (0o1777, 0, True), (0o755, 1, True)],
    ids=["own", "group", "everybody", "sticky", "another user's"],
)
def test_a_folder_of_compiled_functions_of_others_is_noted(
    tmp_path, monkeypatch, capsys, mode, owner, is_noted
):
    tmp_path.chmod(mode)
    uid = tmp_path.stat().st_uid
    monkeypatch.setattr("experiments.cli.process.ADMINISTRATOR", -1)
    monkeypatch.setattr(os, "getuid", lambda: uid + owner)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    warn_of_code_of_others()
    assert ("run code with your rights" in capsys.readouterr().err) == is_noted


@pytest.mark.parametrize("folder", ["", "missing"])
def test_no_folder_of_compiled_functions_is_no_news(folder, monkeypatch, capsys):
    monkeypatch.setenv("NUMBA_CACHE_DIR", folder)
    warn_of_code_of_others()
    assert capsys.readouterr().err == ""


def test_a_folder_that_takes_no_log_file_is_named_in_one_line(tmp_path):
    (tmp_path / "run" / "identify.log").mkdir(parents=True)
    done = run_command("identify", "duration=400samples", "hydra.run.dir=run", cwd=tmp_path)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "cannot write to the folder of the run" in done.err
    assert "identify.log" in done.err


def test_a_folder_that_netcdf_cannot_open_is_refused_before_anything_is_computed(tmp_path):
    done = run_command("identify", "duration=400samples", 'hydra.run.dir="r\udcff"', cwd=tmp_path)
    assert done.code == 1
    assert "NetCDF cannot open a path" in done.out + done.err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe 日 °C\u00a0\n\t", "größe 日 °C\u00a0\n\t"),
        ("\x1b]0;mine\x07", "\\x1b]0;mine\\x07"),
        ("a\rb\x9b2J", "a\\rb\\x9b2J"),
        ("\u202etxt\u2028", "\\u202etxt\\u2028"),
        ("\udcff", "\\udcff"),
    ],
    ids=["letters", "title", "controls", "direction", "byte"],
)
def test_a_message_does_not_act_on_the_terminal(text, shown):
    assert printable(text) == shown
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s", (text,), None)
    assert PrintableMessages().filter(record)
    assert record.getMessage() == shown


def test_what_a_command_says_about_a_file_does_not_act_on_the_terminal(tmp_path):
    (tmp_path / "r.csv").write_text("time,u,y\x1b[2J\n0,1,2\n1,2,3\n")
    record = ("data=csv", "data.estimation=r.csv", "data.inputs=[u]", "data.outputs=[y]")
    done = run_command("identify", *record, cwd=tmp_path)
    assert done.code == 1
    assert "y\\x1b[2J" in done.out
    assert "\x1b" not in done.out + done.err
