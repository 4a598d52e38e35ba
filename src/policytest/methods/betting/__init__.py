"""Betting on temporal differences, for one policy and for two."""
