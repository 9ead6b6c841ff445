"""What several tests of the commands share: commands, records, sweeps, jobs, systems."""
