"""`python -m experiments.export` is the same as `sysid-export`."""

from experiments.export import main

main()
