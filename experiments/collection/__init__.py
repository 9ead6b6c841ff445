"""Collection of a sweep: the results of all its jobs as one labelled data set, tables and figures."""
