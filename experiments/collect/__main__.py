"""`python -m experiments.collect` is the same as `sysid-collect`."""

from experiments.collect import main

main()
