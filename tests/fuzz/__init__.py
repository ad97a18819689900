"""`python -m tests.fuzz`: calls with all kinds of valid and invalid arguments."""
