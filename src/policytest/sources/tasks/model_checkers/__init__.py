"""The explicit formats of probabilistic model checkers."""
