"""`python -m experiments.identify` is the same as `sysid-identify`."""

from experiments.identify import main

main()
