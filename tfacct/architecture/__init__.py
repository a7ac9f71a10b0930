"""What a transformer is: parts with their axes and lines, blocks of sublayers, and the whole."""
