"""What parts of models and of evaluations have in common.

A part is declared (`contracts`), found by name and given its options (`registry`), which have types
(`option_types`) and are checked once; sections of configs have one base class (`section`). Layers
among them record their arguments (`part`). Nothing here knows a config.
"""
