"""How the jobs of a sweep were asked for: the command if there is one, else their overrides in words."""

import math
import shlex
from collections.abc import Mapping

from experiments.collection.sweep_folder import Sweep

SHOWN = 8  # values of a key in words


def command_of(sweep: Sweep) -> str:
    """The command that plans exactly these jobs: a full grid of the overrides that all of them have; or empty.

    Those of a search, and of several commands in one folder, have none.
    """
    given = [_by_key(job.overrides) for job in sweep.jobs]
    if sweep.objectives or not given or any(one.keys() != given[0].keys() for one in given):
        return ""
    if any(len(one) < len(job.overrides) for one, job in zip(given, sweep.jobs, strict=True)):
        return ""  # a key twice
    texts = {key: list(dict.fromkeys(one[key] for one in given)) for key in given[0]}
    n_distinct = len({tuple(one[key] for key in texts) for one in given})
    if not len(given) == n_distinct == math.prod(map(len, texts.values())):
        return ""
    lines = [",".join([own[0], *(text.partition("=")[2] for text in own[1:])]) for own in texts.values()]
    return shlex.join([f"sysid-{sweep.command}", "-m", *lines])


def overrides_text(sweep: Sweep) -> str:
    """Overrides of the jobs in words, key by key, with how many jobs have one if not all do."""
    given = [_by_key(job.overrides) for job in sweep.jobs]
    rows = []
    for key in dict.fromkeys(key for one in given for key in one):
        own = [one[key] for one in given if key in one]
        values = list(dict.fromkeys(text.partition("=")[2] for text in own))
        more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        text = f"`{own[0].partition('=')[0]}`: {', '.join(f'`{value}`' for value in values[:SHOWN])}{more}"
        rows.append(f"- {text}" + (f" ({len(own)} of {len(given)} jobs)" if len(own) < len(given) else ""))
    return "\n".join(rows)


def _by_key(overrides: tuple[str, ...]) -> Mapping[str, str]:
    """Overrides by what they set."""
    return {override.lstrip("+").partition("=")[0]: override for override in overrides}
