"""`sysid-reproduce`: compute every table and figure of the paper beside the published numbers."""

from experiments.cli.entry import entry

main = entry("reproduce", "experiments.reproduce.run")
