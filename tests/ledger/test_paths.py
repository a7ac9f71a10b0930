"""Paths are split, joined and grouped. Kind: golden."""

import pytest

from tfacct.ledger import paths
from tfacct.ledger.lines import Matmul


def test_paths_of_one_block_and_of_all() -> None:
    one = "encoder.blocks.17.attn.q_proj.weight"
    assert paths.parse(one) == ("encoder", "blocks", "17", "attn", "q_proj.weight")
    assert paths.starred(one) == "encoder.blocks.*.attn.q_proj.weight"
    assert paths.numbered(paths.starred(one), 17) == one
    assert paths.starred("lm_head") == "lm_head" and paths.parse("lm_head").part == "lm_head"


def test_a_table_leaves_the_blocks_out() -> None:
    assert paths.short("blocks.*.attn.scores") == "attn.scores"
    assert paths.short("encoder.blocks.*.attn_norm") == "encoder.attn_norm"
    assert paths.short("mtp.*.mlp.up_proj") == "mtp.mlp.up_proj"
    assert paths.short("embed.weight") == "embed.weight"


@pytest.mark.parametrize(
    ("path", "spec", "component"),
    [
        ("blocks.*.attn.scores", "B T K G H, B S K H -> B K G T S", "attn_scores_values"),
        ("blocks.*.attn.k_b_proj", "B S R, R N Hp -> B S N Hp", "attn_projections"),
        # A state read like values, and scores of another name: axes decide, not the name.
        ("blocks.*.attn.values", "B T N H Ns, B T N Ns -> B T N H", "attn_projections"),
        ("blocks.*.attn.meeting", "B T N H, B S N H -> B N T S", "attn_scores_values"),
        ("blocks.*.cross.scores", "B T K G H, B J K H -> B K G T J", "cross"),
        ("blocks.*.mlp.up_proj", "B T D, D F -> B T F", "mlp"),
        ("encoder.blocks.*.attn.scores", "B I K G H, B J K H -> B K G I J", "encoder"),
        ("mtp.*.attn.scores", "B T K G H, B S K H -> B K G T S", "mtp"),
    ],
)
def test_the_component_of_a_matmul_follows_from_its_axes(path: str, spec: str, component: str) -> None:
    assert paths.component_of(Matmul(path, spec)) == component
