"""Bets on outcomes, written once: the capital, which fractions to stake, intervals, and how to combine several.

An outcome Z has E[Z | past] = V and Z >= low (for the side "above"; Z <= high for "below"). Nothing here knows where
outcomes come from: `policytest.methods` has tests that bet on them.
"""
