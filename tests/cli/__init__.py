"""Tests of tfacct.cli."""
