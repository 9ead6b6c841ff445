"""`sysid-collect`: read the results of a sweep into one data set, tables and figures."""

from experiments.cli.arguments import mark_folder
from experiments.cli.entry import entry

main = entry("collect", "experiments.collect.run", mark_folder)
