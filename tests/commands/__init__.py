"""Tests of tfacct.commands."""
