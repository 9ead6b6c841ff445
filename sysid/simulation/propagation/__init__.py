"""Rules that feed predictions back over many samples, together with their uncertainty."""
