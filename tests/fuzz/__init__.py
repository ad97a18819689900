"""`python -m tests.fuzz`: calls with everything that fits and everything that doesn't."""
