"""Tests that need torch, transformers, fvcore or peft: `pytest tests/oracle`."""
