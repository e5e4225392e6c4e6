"""The model: its towers, its matcher, its objective, and how a config becomes one."""
