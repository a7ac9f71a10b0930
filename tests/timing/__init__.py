"""Tests of tfacct.timing."""
