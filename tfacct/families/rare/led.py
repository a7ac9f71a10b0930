"""LED."""

from operator import attrgetter

from tfacct.architecture.blocks import Stack
from tfacct.architecture.parts import Positions
from tfacct.base.errors import ConfigError
from tfacct.families.bart import BartBase, EncoderDecoder
from tfacct.families.fields import PositiveInt, PositiveIntOrList, StrictBool
from tfacct.families.rare.longformer import chunk_attention_modules, window_sizes, with_windows


class LED(EncoderDecoder):
    """LED: BART with an encoder of overlapping attention windows, over a source padded to whole windows."""

    sizes = dict(vocab=50265)
    max_encoder_position_embeddings: PositiveInt = 16384
    max_decoder_position_embeddings: PositiveInt = 1024
    attention_window: PositiveIntOrList = 512
    scale_embedding: StrictBool = False
    normalize_before: StrictBool = False
    add_final_layer_norm: StrictBool = False
    add_bias_logits: StrictBool = False
    do_blenderbot_90_layernorm: StrictBool = False
    normalize_embedding: StrictBool = True
    static_position_embeddings: StrictBool = False

    separate_encoder_axes = "KHFP"
    required_values = {
        **BartBase.required_values,
        "scale_embedding": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
        "tie_word_embeddings": True,
    }
    base_model_prefix = "led"
    encoder_attention = ".encoder.layers.*.self_attn"
    module_names = {
        **{
            f"encoder.blocks.*.{name}": hf_name
            for name, hf_name in chunk_attention_modules(f"{encoder_attention}.longformer_self_attn").items()
        },
        "encoder.blocks.*.attn.o_proj": f"{encoder_attention}.output",
    }
    context = property(attrgetter("max_decoder_position_embeddings"))

    @property
    def source(self) -> int:
        """max_encoder_position_embeddings, in whole windows. Raises ConfigError."""
        longest, rows = max(self.windows), self.max_encoder_position_embeddings
        if longest > rows:
            raise ConfigError(
                f"attention_window = {longest:,} is more than max_encoder_position_embeddings = {rows:,}: the source"
                " is padded to a multiple of the window, which needs more positions"
            )
        return rows - rows % longest

    @property
    def windows(self) -> list[int]:
        """The window of each encoder layer. Raises ConfigError."""
        return window_sizes(self.attention_window, self.encoder_layers, "encoder_layers", "the source")

    def positions(self, side: str) -> Positions:
        return Positions(rows=getattr(self, f"max_{side}_position_embeddings"), hidden=self.d_model)

    def stacks(self, side: str) -> tuple[Stack, ...]:
        alike = super().stacks(side)
        if side == "decoder":
            return alike
        windows, _ = self.windows, self.source
        return with_windows(alike[0].block, windows)
