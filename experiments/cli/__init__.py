"""From the command line to a run and back: what all commands share."""
