"""Tests of tfacct.architecture."""
