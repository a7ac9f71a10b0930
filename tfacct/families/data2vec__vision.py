"""data2vec for images: BEiT's encoder, by names of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.families._endings import Ending
from tfacct.families.beit import TABLE
from tfacct.families.beit import Config as Beit

RELEASED = "2022-02"

BODY_AT = "data2vec_vision."
LAYER = {
    "attn_norm": "layernorm_before",
    "attn.q_proj": "attention.attention.query",
    "attn.k_proj": "attention.attention.key",
    "attn.v_proj": "attention.attention.value",
    "attn.scores": "attention.attention",
    "attn.values": "attention.attention",
    "attn.o_proj": "attention.output.dense",
    "mlp_norm": "layernorm_after",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
}
FRONT = ("embed.class.weight", "embed.mask.weight", "pos_embed.weight")


def _renamed(ending: Ending) -> Ending:
    """BEiT's, of a body by this name."""
    return replace(
        ending, paths={ours: theirs.replace("beit.", BODY_AT) for ours, theirs in (ending.paths or {}).items()}
    )


class Config(Beit):
    """`model_type = "data2vec-vision"`: `Data2VecVisionModel`, or the class that `architectures` names."""

    stems: ClassVar = ("Data2VecVision",)
    body: ClassVar = BODY_AT
    in_files: ClassVar = ()
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", body=""),
        "ForImageClassification": _renamed(Beit.heads["ForImageClassification"]),
    }
    hf_paths: ClassVar = {
        "embed.project": f"{BODY_AT}embeddings.patch_embeddings.projection",
        **{f"blocks.*.{ours}": f"{BODY_AT}encoder.layer.*.{theirs}" for ours, theirs in LAYER.items()},
        "final_norm": f"{BODY_AT}layernorm",
    }
    hf_tensors: ClassVar = {
        **{name: Beit.hf_tensors[name].replace("beit.", BODY_AT) for name in FRONT},
        "rel_bias.weight": f"{BODY_AT}encoder.relative_position_bias.{TABLE}",
        "blocks.*.attn.rel_bias.weight": f"{BODY_AT}encoder.layer.*.attention.attention.relative_position_bias.{TABLE}",
        "blocks.*.attn.channel_scale.weight": f"{BODY_AT}encoder.layer.*.lambda_1",
        "blocks.*.mlp.channel_scale.weight": f"{BODY_AT}encoder.layer.*.lambda_2",
    }
