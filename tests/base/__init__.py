"""Tests of tfacct.base."""
