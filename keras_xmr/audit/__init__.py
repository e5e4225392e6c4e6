"""Finds labels that are missing: unlabelled pairs that models believe in, for people to judge."""
