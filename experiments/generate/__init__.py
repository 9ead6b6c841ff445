"""`sysid-generate`: a benchmark folder that others can use without this toolbox."""

from experiments.cli.entry import entry

main = entry("generate", "experiments.generate.run")
