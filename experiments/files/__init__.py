"""Files of a run: which ones it writes, their contents, and the digests that identify them."""
