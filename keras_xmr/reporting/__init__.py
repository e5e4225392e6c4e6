"""What reports are made of: pages, plots, and files for spreadsheets."""
