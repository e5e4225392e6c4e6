"""Finds missing labels: unlabelled pairs that models rank highly, for people to judge."""
