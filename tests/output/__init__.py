"""Tests of tfacct.output."""
