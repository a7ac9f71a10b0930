"""Training steps of encoders that turn queries and keys, by hand."""

from tfacct import load
from tfacct.ledger.workload import Workload
from tfacct.reports.training import Recipe, step_of


def test_a_gated_encoder_drops_numbers_inside_its_network() -> None:
    """GTE's network drops numbers of its product: a byte for each, and no more, for what is left stands in the place of
    the product. Nomic BERT, of the same sizes without dropout, has a byte less for each, and for each of two sums."""
    sizes = {"hidden_size": 48, "num_attention_heads": 6, "intermediate_size": 70, "num_hidden_layers": 3}
    kept = []
    for name, head in (("gte-base-en-v1.5", "GteForMaskedLM"), ("nomic-embed-text-v1.5", "NomicBertForMaskedLM")):
        model = load(name, **sizes, architectures=[head], hidden_act="gelu", attention_probs_dropout_prob=0.0).loaded
        step = step_of(model, Workload(context=23, tokens=23, batch=2), Recipe())
        kept.append(step.kept_in(step.run.blocks[0]))
    assert kept[1] == 2 * 23 * (2 * 48 * 4 + 2 * 48 * 4 + 4 * 6 + 2 * 70 * 4 + 16) + 24
    assert kept[0] - kept[1] == 2 * 23 * (70 + 2 * 48)
