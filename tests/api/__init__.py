"""Tests of tfacct.api."""
