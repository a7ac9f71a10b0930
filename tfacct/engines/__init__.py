"""What a serving engine allocates and prints at start: formulas, and profiles by version as data."""
