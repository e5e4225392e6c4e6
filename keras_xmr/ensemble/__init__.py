"""Several finished runs as one."""
