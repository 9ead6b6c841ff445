"""Sources of records: CSV files and tables, stored files, published data sets."""
