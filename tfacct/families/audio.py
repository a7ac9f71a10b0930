"""Audio encoders like Whisper's: two convolutions, positions, and pre-norm layers."""

from math import lcm
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import Averaged, Positions, Stem
from tfacct.base.errors import ConfigError
from tfacct.families.encoders import Encoder
from tfacct.families.family import attention_modules
from tfacct.families.fields import PositiveInt
from tfacct.families.task_heads import TaskHead

AVERAGED = 2
"""Positions that Qwen's audio encoders average."""


class AudioEncoder(Encoder):
    """The fields of an encoder of log-mel spectrograms, and its layers."""

    sizes = dict(hidden=1280, mlp=5120, layers=32, heads=20)
    num_mel_bins: PositiveInt = 128
    max_source_positions: PositiveInt = 1500
    given_head_dim: PositiveInt | None = None

    constant_axes = frozenset({"G", "Fp", "Kf"})  # the convolutions
    attribute_map = {
        "activation_function": "hidden_act",
        "d_model": "hidden_size",
        "encoder_layers": "num_hidden_layers",
        "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
    }
    reference_only = "given_head_dim"
    ignored_fields = "vocab_size scale_embedding layerdrop encoder_layerdrop"
    task_heads = {"Encoder": TaskHead("AutoModel", "none")}
    module_names = {f"embed.conv{i}": f"conv{i}" for i in (1, 2)}
    layer_path = "layers.*"
    layer_module_names = {
        **attention_modules("self_attn", o="out_proj"),
        "attn_norm": "self_attn_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
        "mlp_norm": "final_layer_norm",
    }
    context = property(attrgetter("max_source_positions"))
    attention_options = dict(key_bias=False)  # keys have no bias


class FullAttentionEncoder(AudioEncoder):
    """Encoders whose positions attend to all others, with positions that are stored but not trained."""

    attribute_map = {"num_key_value_heads": "num_attention_heads", "head_dim": "given_head_dim"}
    hf_fixed_source = True
    module_names = {"pos_embed": "embed_positions"}

    def check(self) -> None:
        super().check()
        if self.given_head_dim not in (None, self.head_dim):
            raise self.refused("head_dim", self.given_head_dim)

    def ends(self) -> dict[str, Any]:
        """Convolutions, positions and a norm."""
        hidden = self.hidden_size
        positions = Positions(rows=self.max_source_positions, hidden=hidden, trained=False)
        return {
            **super().ends(),
            "embed": Stem(bins=self.num_mel_bins, hidden=hidden, every=None),
            "positions": positions,
        }


class VoxtralEncoder(FullAttentionEncoder):
    """Voxtral's audio encoder: Whisper's encoder."""

    class_prefixes = ("Voxtral",)
    module_names = {"final_norm": "layer_norm"}


class Qwen2AudioEncoder(FullAttentionEncoder):
    """Qwen2-Audio's encoder: Whisper's encoder, with means of two positions before the last norm."""

    class_prefixes = ("Qwen2Audio",)
    constant_axes = AudioEncoder.constant_axes | {"Mp"}
    module_names = {"merger.norm": "layer_norm"}
    final_norm = False

    def ends(self) -> dict[str, Any]:
        """Means of two positions, and their norm."""
        return {**super().ends(), "merger": Averaged(hidden=self.hidden_size, patches=AVERAGED)}


class AudioFlamingo3Encoder(Qwen2AudioEncoder):
    """Audio Flamingo 3's encoder: Qwen2-Audio's."""

    class_prefixes = ("AudioFlamingo3",)
    task_heads = {"Encoder": TaskHead("models.audioflamingo3.modeling_audioflamingo3.AudioFlamingo3Encoder", "none")}


class Qwen2_5OmniAudio(AudioEncoder):
    """Qwen2.5-Omni's audio encoder: Whisper's encoder in separate chunks; means of two positions, and a projection."""

    n_window: PositiveInt = 100
    output_dim: PositiveInt = 3584

    constant_axes = AudioEncoder.constant_axes | {"Mp", "Xe"}
    task_heads = {"Encoder": TaskHead("models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniAudioEncoder", "none")}
    module_names = {"merger.norm": "ln_post", "merger.proj": "proj", "merger.ends": "audio_bos_eos_token"}
    final_norm = False
    attention_options = dict(tiles=attrgetter("n_window"))

    @property
    def context(self) -> int:
        """max_source_positions, in full chunks."""
        multiple = lcm(self.n_window, AVERAGED)
        return max(self.max_source_positions // multiple, 1) * multiple

    def check(self) -> None:
        super().check()
        hidden = self.hidden_size
        if hidden % 2 or hidden < 4:  # half are sines, at rates from 1 to 1 / 10,000
            raise ConfigError(f"d_model = {hidden:,} must be even, and at least 4, for sines and cosines")
        if self.n_window > self.max_source_positions:
            raise ConfigError(
                f"n_window = {self.n_window:,} positions per chunk exceed"
                f" max_source_positions = {self.max_source_positions:,}"
            )

    def ends(self) -> dict[str, Any]:
        """Convolutions of each chunk, sinusoidal positions, means and a projection."""
        hidden, chunk, rows = self.hidden_size, self.n_window, self.max_source_positions
        return {
            **super().ends(),
            "embed": Stem(bins=self.num_mel_bins, hidden=hidden, every=chunk),
            "positions": Positions(rows=rows, hidden=hidden, layout="sines_then_cosines"),
            "merger": Averaged(hidden=hidden, patches=AVERAGED, kind="projected", out=self.output_dim),
        }
