"""Used by all other packages: errors, units, ranges. No transformers, no reports."""
