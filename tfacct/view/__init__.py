"""Reports on a screen: the only rooms that know rich."""
