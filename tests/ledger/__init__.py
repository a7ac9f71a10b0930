"""Tests of tfacct.ledger."""
