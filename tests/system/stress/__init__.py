"""Every call of the API from many threads at once, with faults, checked against a model."""
