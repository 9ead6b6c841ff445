"""Progress of calls that take long: in a terminal, in a notebook, and where nobody sees it."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from sysid import progress_display
from sysid.progress import Steps, on_progress
from sysid.progress_display import ERASE, doing, shows_progress

DELAY = 0.02  # s, instead of two seconds
LONG = 0.15  # s, that a call of these tests takes if it takes long


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


class Notebook:
    """What a notebook offers, and what is displayed in it."""

    def __init__(self):
        self.displayed = []
        self.display = SimpleNamespace(HTML=str, display=self.show)
        self.package = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None))

    def show(self, content, display_id):
        assert display_id
        self.displayed.append(content)
        return SimpleNamespace(update=self.displayed.append)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(progress_display, "SECONDS_UNTIL_SHOWN", DELAY)
    monkeypatch.setattr(progress_display, "SECONDS_BETWEEN_UPDATES", DELAY)


def write_errors_to(stream, monkeypatch):
    """Let the display find this stream; that of the process belongs to pytest."""
    process = SimpleNamespace(stderr=stream, __stderr__=stream, modules=sys.modules)
    monkeypatch.setattr(progress_display, "sys", process)


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    write_errors_to(stream, monkeypatch)
    return stream


@pytest.fixture
def notebook(monkeypatch):
    offered = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", offered.package)
    monkeypatch.setitem(sys.modules, "IPython.display", offered.display)
    return offered


@shows_progress("identify")
def search(seconds=LONG):
    """Search in two steps, each of which takes half of the time; then work once more."""
    steps = Steps(2)
    with doing("choosing the lags"):
        for _ in range(2):
            with steps.step():
                time.sleep(seconds / 2)
    with doing("training"):
        time.sleep(seconds / 2)
    return "result"


def test_a_terminal_shows_the_work_and_its_steps_and_is_clean_at_the_end(terminal):
    assert search() == "result"
    text = terminal.getvalue()
    assert "identify: choosing the lags, step 1 of 2, 0 s" in text
    assert "choosing the lags, step 2 of 2, about 0 s more, 0 s" in text
    assert "identify: training, 0 s" in text  # the steps of the work before are over
    assert text.endswith(ERASE)


def test_a_notebook_shows_a_bar_that_is_gone_at_the_end(notebook):
    search()
    assert any('value="0.500"' in html for html in notebook.displayed)
    assert any("identify: training" in html for html in notebook.displayed)
    assert notebook.displayed[-1] == ""


def test_a_quick_call_shows_nothing(terminal, notebook):
    search(0.0)
    assert terminal.getvalue() == ""
    assert notebook.displayed == []


def test_nothing_is_written_where_nobody_looks(monkeypatch):
    stream = io.StringIO()  # a file or a pipe
    write_errors_to(stream, monkeypatch)
    search()
    assert stream.getvalue() == ""


def test_a_stream_in_place_of_standard_error_is_left_alone(terminal, monkeypatch):
    monkeypatch.setattr(progress_display.sys, "__stderr__", io.StringIO())
    search()
    assert terminal.getvalue() == ""


def test_a_caller_that_listens_shows_the_progress_itself(terminal):
    heard = []
    with on_progress(heard.append):
        search()
    assert heard[0] == "step 1 of 2"
    assert terminal.getvalue() == ""


def test_calls_within_a_call_share_its_display(terminal):
    @shows_progress("compare")
    def compare():
        search()

    compare()
    assert "compare: training" in terminal.getvalue()


def test_a_step_may_end_while_it_is_described():
    class Ending(progress_display.Shown):
        """A call whose step ends right after the display has read it."""

        n_reads = 0

        @property
        def step(self):
            self.n_reads += 1
            return ("step 1 of 2", 0.0) if self.n_reads == 1 else None

        @step.setter
        def step(self, value):
            pass

    shown = Ending(progress_display.TerminalLine(io.StringIO()))
    shown.end()
    shown.n_reads = 0
    shown.work.append("training")
    assert shown.describe() == ("training, step 1 of 2, 0 s", 0.0)


def test_what_was_shown_is_removed_if_the_display_fails(terminal, monkeypatch):
    def fail(self):
        raise TypeError("no words")

    describe = progress_display.Shown.describe
    calls = iter([describe, fail])
    monkeypatch.setattr(progress_display.Shown, "describe", lambda self: next(calls)(self))
    search()
    assert terminal.getvalue().endswith(ERASE)
    assert "identify" in terminal.getvalue()


def test_an_error_ends_the_display(terminal):
    @shows_progress("identify")
    def fail():
        time.sleep(LONG)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert terminal.getvalue().endswith(ERASE)


def test_a_terminal_that_was_closed_does_not_end_the_call(terminal):
    terminal.close()
    assert search() == "result"
