"""Who runs the model: one module for each way to run it says what each part keeps for its backward pass."""
