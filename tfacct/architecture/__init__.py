"""A transformer: parts with their axes and lines, layers of sublayers, and the whole model."""
