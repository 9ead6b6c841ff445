"""`python -m experiments.reproduce` is the same as `sysid-reproduce`."""

from experiments.reproduce import main

main()
