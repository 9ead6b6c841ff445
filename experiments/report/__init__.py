"""`sysid-report`: show a stored run or sweep as one page."""

from experiments.cli.arguments import mark_folder
from experiments.cli.entry import entry

main = entry("report", "experiments.report.run", mark_folder)
