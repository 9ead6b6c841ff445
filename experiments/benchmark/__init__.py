"""`sysid-benchmark`: measure every speed and accuracy claim of the toolbox."""

from experiments.cli.entry import entry

main = entry("benchmark", "experiments.benchmark.run")
