"""`sysid-compare`: the models of several runs on the same test record."""

from experiments.cli.arguments import mark_runs
from experiments.cli.entry import entry

main = entry("compare", "experiments.compare.run", mark_runs)
