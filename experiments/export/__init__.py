"""`sysid-export`: write a stored model as one Python file that needs NumPy only."""

from experiments.cli.entry import entry

main = entry("export", "experiments.export.run")
