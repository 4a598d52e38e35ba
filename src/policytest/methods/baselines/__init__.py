"""Baselines behind the interface of `PTST`: boxes, a closed-form bound on T*, and Monte-Carlo returns."""
