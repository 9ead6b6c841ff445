"""`python -m experiments.report` is the same as `sysid-report`."""

from experiments.report import main

main()
