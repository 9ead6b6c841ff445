"""Work that many jobs share, done once: simulated trajectories and trained hyper-parameters on disk, by content."""
