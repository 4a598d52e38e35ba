"""Code compiled by numba; each file is a compile unit of its own."""
