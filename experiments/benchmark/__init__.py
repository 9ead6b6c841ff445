"""`sysid-benchmark`: measure every claim about speed and accuracy of the toolbox."""

from experiments.cli.entry import entry

main = entry("benchmark", "experiments.benchmark.run")
