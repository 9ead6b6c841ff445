"""`python -m experiments.generate` is the same as `sysid-generate`."""

from experiments.generate import main

main()
