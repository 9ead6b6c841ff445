"""`sysid-export`: write a stored model in a form that runs without the toolbox."""

from experiments.cli.entry import entry

main = entry("export", "experiments.export.run")
