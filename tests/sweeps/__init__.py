"""Sweeps that take minutes or hours: run weekly, or by hand."""
