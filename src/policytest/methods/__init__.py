"""Tests: settings that start a run, and the run that steps."""
