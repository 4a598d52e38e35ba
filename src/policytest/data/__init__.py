"""What was observed: counts, transitions, simulators."""
