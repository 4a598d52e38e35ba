"""What is returned: data, one table, JSON."""
