"""Tests of tfacct.training."""
