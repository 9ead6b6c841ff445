"""Export of identified models, for use without the toolbox."""
