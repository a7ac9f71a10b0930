"""Architecture of a transformer: parts with axes and lines, layers of sublayers, and the whole model."""
