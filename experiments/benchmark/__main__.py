"""`python -m experiments.benchmark` is the same as `sysid-benchmark`."""

from experiments.benchmark import main

main()
