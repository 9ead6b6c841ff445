"""The figure of a benchmark: its signals over time."""

from textwrap import fill

from experiments.drawing.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    draw_line,
    png,
    screen,
    show_from_to,
    unit_of,
    with_clock,
)
from experiments.generate.benchmark import Benchmark
from sysid.data.source import RECORD_ROLES

ROLE_COLORS = {"estimation": BLUE, "validation": GREEN, "test": ORANGE}


def draw_time_series(benchmark: Benchmark) -> bytes:
    """Draw every input and output of the first record of each role, as a PNG file.

    The initialisation windows are shaded.
    """
    records = {role: benchmark.select(role)[0] for role in RECORD_ROLES}
    measured = {role: with_clock(record.measured, "time") for role, record in records.items()}
    names = [str(name) for name in measured["test"].data_vars]
    figure, axes = screen(
        len(names),
        0.8 + 2.0 * len(names),
        ncols=len(RECORD_ROLES),
        sharey="row",
        sharex="col",
        squeeze=False,
    )
    for column, (role, record) in enumerate(measured.items()):
        x = record["shown"].values
        window = records[role].window
        for ax, name in zip(axes[:, column], names, strict=True):
            draw_line(ax, x, record[name].values, color=ROLE_COLORS[role], linewidth=0.7)
            if window:
                ax.axvspan(x[0], x[window - 1], color=GREY, alpha=0.25, linewidth=0)
            show_from_to(ax, x)
        shading = "\ngrey: initialisation window" if window else ""
        axes[0, column].set_title(f"{records[role].name}: {len(x)} samples{shading}")
        axes[-1, column].set_xlabel(record["shown"].attrs["label"])
    for ax, name in zip(axes[:, 0], names, strict=True):
        label = f"{name} [{unit_of(measured['test'][name])}]"
        ax.set_ylabel(fill(label, 22, break_long_words=False))
    return png(figure)
