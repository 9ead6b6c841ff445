"""`sysid-validate`: how good a stored model predicts and simulates records, or a simulated
plant.
"""

from experiments.cli.entry import entry

main = entry("validate", "experiments.validate.run")
