"""`python -m experiments.validate` is the same as `sysid-validate`."""

from experiments.validate import main

main()
