"""What exists because the paper has it, and nothing lower imports."""
