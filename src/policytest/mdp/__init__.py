"""What is known: tasks, values, instances."""
