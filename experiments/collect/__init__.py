"""`sysid-collect`: the results of a sweep as one data set, tables and figures."""

from experiments.cli.arguments import mark_folder
from experiments.cli.entry import entry

main = entry("collect", "experiments.collect.run", mark_folder)
