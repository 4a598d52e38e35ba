"""Recorded transitions: from tables, files and growing logs to counts."""
