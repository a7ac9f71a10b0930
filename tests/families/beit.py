"""BEiT: scores of how far patches are apart, of each block or of all, and factors of channels."""

from hypothesis import strategies as st

from tests.families._drawing import ON, Draw, Fields, some
from tests.families._sizes import Distinct, Sized
from tests.families._towers import REQUIRED as REQUIRED
from tests.families._towers import image, image_sizes

TINY = {
    "model_type": "beit", "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 71,
    "num_channels": 5, "image_size": 22, "patch_size": 5, "use_relative_position_bias": True,
}  # fmt: skip
SHARED = {"use_relative_position_bias": False, "use_shared_relative_position_bias": True, "use_mask_token": True}
VARIANTS = {
    "shared": {**TINY, **SHARED, "use_mean_pooling": False},
    "absolute": {
        **TINY,
        "use_relative_position_bias": False,
        "use_absolute_position_embeddings": True,
        "layer_scale_init_value": 0.0,
    },
}
LOGITS = {"": TINY, **VARIANTS}
CONTEXT = 197
SILENT = {"vocab_size": 30, "drop_path_rate": 0.2, "pool_scales": [1, 2, 3, 6], "use_auxiliary_head": True}


def drawn(draw: Draw) -> Fields:
    which = draw(st.sampled_from(["", "use_relative_position_bias", "use_shared_relative_position_bias"]))
    fields = {**image(draw), **({which: True} if which else {})}
    some(draw, fields, use_mask_token=ON, use_absolute_position_embeddings=ON, use_mean_pooling=ON)
    return some(draw, fields, layer_scale_init_value=st.sampled_from([0.0, 0.1, 1e-5]))


def sized(of: Distinct) -> Sized:
    config, sizes = image_sizes(of, front=1)
    side = of.more[0]
    config |= {"use_relative_position_bias": True, "use_absolute_position_embeddings": True}
    return config, {**sizes, "Rp": (2 * side - 1) ** 2 + 3}
