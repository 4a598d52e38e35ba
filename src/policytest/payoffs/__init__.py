"""Payoffs: what bets are made on. Each turns draws into outcomes with a known mean and a guaranteed range.

A payoff knows nothing of capital: `policytest.eprocess` bets on its outcomes, and the runs of `policytest.methods` put
the two together. The proof of mean and range is the docstring of its module.
"""
