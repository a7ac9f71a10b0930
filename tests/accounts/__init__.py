"""Tests of tfacct.accounts."""
