"""Tests of tfacct.algebra."""
