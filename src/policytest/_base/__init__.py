"""What knows nothing of tests: errors, arrays, rows, text, tables, files."""
