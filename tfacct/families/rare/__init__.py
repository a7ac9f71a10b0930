"""Families with parts of their own that few models share."""
