"""What parts of models and of evaluations have in common.

A part is declared (`contracts`), found by name and given its options (`registry`), which have types
(`option_types`) and are sections of a config (`sections`). Layers among them record their arguments
(`part`). Nothing here knows a config.
"""
