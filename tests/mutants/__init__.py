"""Mutants: small mistakes in code that decides results, to measure what the tests notice."""
