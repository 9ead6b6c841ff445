"""The parts of a benchmark folder, one file per part; `experiments.generation` puts them together."""
