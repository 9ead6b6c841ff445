"""Pages for people: a run, a sweep or a comparison as one HTML file that needs nothing but a browser."""
