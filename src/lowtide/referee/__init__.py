"""Checks plans, layouts and traces from scratch; plans nothing, trusts nothing."""
