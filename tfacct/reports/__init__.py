"""A module per command. Each takes models and a request and returns a Report; none has a formula of its own."""
