"""From what a user calls a model to a loaded model: presets, files, hub ids."""
