"""What everything stands on: errors, units, ranges. No transformers, no reports."""
