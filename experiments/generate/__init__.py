"""`sysid-generate`: a benchmark folder that others can use without this toolbox."""

from experiments.cli.entry import entry


def _take_configuration(arguments: list[str]) -> list[str]:
    from experiments.generate.sent import take_configuration  # imports Hydra

    return take_configuration(arguments)


main = entry("generate", "experiments.generate.run", take=_take_configuration)
