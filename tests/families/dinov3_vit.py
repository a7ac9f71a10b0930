"""DINOv3: registers in front of patches, which are turned by row and column."""

from hypothesis import strategies as st

from tests.families._drawing import ON, WIDTH, Draw, Fields, of_whole_heads, some, without
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "dinov3_vit", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
    "intermediate_size": 71, "num_channels": 5, "image_size": 22, "patch_size": 5, "num_register_tokens": 3,
}  # fmt: skip
VARIANTS = {
    "gated": {**TINY, "use_gated_mlp": True, "hidden_act": "silu", "query_bias": False, "value_bias": False},
    "with every bias": {**TINY, "key_bias": True, "num_register_tokens": 0, "rope_theta": 50.0},
    "without others": {**TINY, "proj_bias": False, "mlp_bias": False},
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 197
SILENT = {"layerscale_value": 0.3, "drop_path_rate": 0.1, "pos_embed_rescale": 3.0}


def drawn(draw: Draw) -> Fields:
    quarters = without(
        of_whole_heads(draw, st.integers(1, 3).map(lambda n: 4 * n)), "tie_word_embeddings", "vocab_size"
    )
    fields = {**image(draw), **quarters, "intermediate_size": draw(WIDTH)}
    if draw(ON):
        fields |= {"query_bias": False, "value_bias": False, "key_bias": False}
    fields = some(draw, fields, proj_bias=ON, mlp_bias=ON, use_gated_mlp=ON, num_register_tokens=st.integers(0, 5))
    return fields if "query_bias" in fields else some(draw, fields, key_bias=ON)


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=1)
    count, size = of.more[4], 2 * sizes["H"]
    sizes |= {"Xr": count, "Xc": count + 1, "Ti": of.S - count - 1, "U": 1, "H": size, "D": size * sizes["K"]}
    config |= {"hidden_size": sizes["D"], "num_register_tokens": count}
    return config, without(sizes, "P")
