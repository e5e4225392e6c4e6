"""Presentation of results: tables, pages, plots, and files for spreadsheets."""
