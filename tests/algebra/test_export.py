"""The exported ledger, read by a program that shares no code with the exporter. Kind: golden."""

import json

import pytest

from tests.helpers import conformance
from tfacct import load
from tfacct.algebra.export import SizeText, export_ledger, value
from tfacct.ledger.einsum import SpecError
from tfacct.ledger.lines import SHARES
from tfacct.ledger.workload import OF_STEPS
from tfacct.loading import presets


def test_a_size_is_written_as_it_is_counted() -> None:
    assert SizeText("K") * SizeText("G") == "K*G"
    assert sum([SizeText("R"), 2 * SizeText("Ns")]) == "R+2*Ns"
    assert 1 * SizeText("K") == SizeText("K") * 1 == "K"
    with pytest.raises(SpecError, match="brackets"):
        SizeText("R+Hr") * SizeText("K")


def test_every_preset_is_exported_and_its_axes_are_explained() -> None:
    """`export_ledger` itself compares each size with the ledger's."""
    for ours in presets.load_all():
        model = export_ledger(ours.architecture)
        assert len(model.ways) == len(ours.ledger.ways)
        for way in model.ways:
            for group in way["groups"]:
                known = {*group["axes"], *OF_STEPS, *SHARES}
                for line in group["lines"]:
                    assert set(line["spec"].replace(",", "").replace("->", "").split()) <= known, line
        assert set(model.sizes) <= set(model.legend), ours.name


def test_a_derived_size_is_written_in_its_axes() -> None:
    """Falcon H1's projection holds gates, inputs and the heads' steps: 2 · Km · Gm · Hm + 2 · Km · Ns + Km · Gm."""
    blocks = load("falcon-h1-0.5b").symbolic_ledger().ways[0]["groups"][1]
    assert blocks["count"] == "L" and blocks["blocks"] == "0-35"
    assert blocks["axes"]["N"] == "K*G"
    assert blocks["axes"]["Di"] == "2*Km*Gm*Hm+2*Km*Ns+Km*Gm"
    assert value("2*Km*Gm+Km", {"Km": 3, "Gm": 5}) == 33


def test_an_encoder_of_its_own_sizes_has_its_own_axes() -> None:
    groups = load("bart-base").symbolic_ledger().ways[0]["groups"]
    assert next(group for group in groups if group["count"] == "Le")["axes"]["N"] == "Kenc*G"


def test_the_file_of_points_has_the_counts_of_the_ledgers() -> None:
    """Sizes are drawn at every point, and counted from the parts: the exported text is not used."""
    document = conformance.document()
    assert conformance.FILE.read_text(encoding="utf-8") == document
    assert len(json.loads(document)["points"]) > 1000
