"""All steps of a run from records to exports, and runs that are loaded."""
