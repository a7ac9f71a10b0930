"""Tests of tfacct.engines."""
