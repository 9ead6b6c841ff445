"""`sysid-identify`: identify a system online while it is simulated, or from a record."""

from experiments.cli.entry import entry

main = entry("identify", "experiments.identify.run")
