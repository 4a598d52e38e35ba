"""How many samples: before a test, and after one that is undecided."""
