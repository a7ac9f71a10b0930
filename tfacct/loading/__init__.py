"""From a user's name of a model to a loaded model: presets, files, hub ids, checkpoints, devices."""
