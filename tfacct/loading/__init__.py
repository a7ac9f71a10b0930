"""From the name that a user gives to a loaded model: presets, files, hub ids, checkpoints, devices."""
