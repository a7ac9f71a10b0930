"""The base of everything else: errors, units, ranges. No transformers, no reports."""
