"""Sources of records: files of one's own, stored data sets, published sets."""
