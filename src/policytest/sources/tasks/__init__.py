"""Tasks and policies from files."""
