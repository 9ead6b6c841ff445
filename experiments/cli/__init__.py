"""The command line of all commands, from its arguments to the run and its end."""
