"""Strategy, phases, schedules, checkpoints and callbacks of training."""
