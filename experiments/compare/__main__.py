"""`python -m experiments.compare` is the same as `sysid-compare`."""

from experiments.compare import main

main()
