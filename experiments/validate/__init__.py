"""`sysid-validate`: how well a stored model predicts and simulates records, or a plant."""

from experiments.cli.entry import entry

main = entry("validate", "experiments.validate.run")
