"""Tests of tfacct.reports."""
