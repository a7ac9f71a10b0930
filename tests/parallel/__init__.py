"""Tests of tfacct.parallel."""
