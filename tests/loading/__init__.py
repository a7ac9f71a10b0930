"""Tests of tfacct.loading."""
