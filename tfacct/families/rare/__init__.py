"""Families with rare parts."""
