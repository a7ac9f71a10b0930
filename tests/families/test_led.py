"""LED's windows. Kind: output, refusal."""

from sympy import Symbol, sympify

from tests.families.rare import LED
from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model


def test_a_padded_source_costs_its_encoder_whole_windows() -> None:
    """Of 13 tokens in windows of 12 there are 24: halves of 2 tokens are 12, of 6 tokens 4, windows one fewer each.
    The decoder reads 13."""
    ours = load_model("mine", LED.TWO)
    flops = ours.ledger.flops(Workload(5, 5, source=13, new_source=13).axes(), unfolded=True)
    assert flops["encoder.blocks.0.attn.q_proj"] == 2 * 24 * 60 * 60
    assert flops["encoder.blocks.0.attn.scores"] == 2 * 11 * 4 * 4 * 60
    assert flops["encoder.blocks.1.attn.scores"] == 2 * 3 * 12 * 12 * 60
    assert flops["encoder.blocks.0.attn.values"] == 2 * 12 * 2 * 6 * 60
    assert flops["encoder.blocks.1.attn.values"] == 2 * 4 * 6 * 18 * 60
    assert flops["blocks.0.cross.k_proj"] == 2 * 13 * 60 * 60
    later = ours.ledger.flops(Workload(6, 1, source=13).axes())
    assert not any(count for path, count in later.items() if path.startswith("encoder"))


def test_the_source_is_in_whole_windows_unless_said(run) -> None:
    assert load_model("mine", LED.TINY).source == 28
    said = run("flops", "led-base-16384", "--source", "2000").out.replace("\n", " ")
    assert "over the whole source, padded to 2,048 tokens, a multiple of the window (1,024)." in said
    assert "padded" not in run("flops", "led-base-16384").out
    assert "in an encoder, pairs within overlapping windows" in said


def test_what_overtakes_the_rest_is_the_decoders_own_attention(run) -> None:
    """Scores of the encoder and across stand among the rest."""
    said = " ".join(run("sweep", "led-base-16384", "--ctx", "1k,2k").out.split())
    assert (
        "of its position embedding, the decoder's self-attention scores and attention-weighted values cost more" in said
    )


def test_windows_of_several_lengths_have_letters_of_their_own_in_a_formula() -> None:
    """Read back with the sizes that the legend gives, the formula is the count; of 13 source tokens 24 are read."""
    model = load(LED.TWO)
    for step in ({"ctx": 11, "source": 13, "batch": 3}, {"ctx": 11, "tokens": 1, "source": 13}):
        facts = model.formula(**step).models[0]
        sizes = {axis: about["value"] for axis, about in facts["legend"].items() if "value" in about}
        assert sympify(facts["total_formula"], locals={axis: Symbol(axis) for axis in facts["legend"]}).subs(sizes) == (
            model.flops(**step).total
        )
        assert (sizes["Ih1"], sizes["Iw2"]) == ((0, 0) if "tokens" in step else (12, 3))
    assert facts["legend"]["Iw1"]["meaning"].startswith("overlapping windows, Ih1")
