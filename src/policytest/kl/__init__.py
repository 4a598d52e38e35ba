"""What KL rules share: counts with a witness, boundaries, and sampling rules. The rules themselves are methods."""
