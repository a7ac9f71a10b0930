"""Qwen2.5-Omni's encoder of audio: Whisper's in chunks that do not see one another; means of two, and a product."""

from math import lcm
from typing import Any, ClassVar

from tfacct.architecture.parts import Averaged, Positions, Stem
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import voxtral_encoder
from tfacct.families._base import Count
from tfacct.families._endings import Ending
from tfacct.families.qwen2_audio_encoder import AVERAGED

RELEASED = "2025-03"


class Config(voxtral_encoder.Config):
    """`Qwen2_5OmniAudioEncoderConfig`, with its class's defaults."""

    n_window: Count = 100
    output_dim: Count = 3584

    stems: ClassVar = ("Qwen2_5OmniAudio",)
    heads: ClassVar = {"Encoder": Ending("models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniAudioEncoder", "none")}
    aliases: ClassVar = {
        name: field
        for name, field in voxtral_encoder.Config.aliases.items()
        if name not in ("head_dim", "num_key_value_heads")
    }
    class_source_whole: ClassVar = False
    fixed: ClassVar = voxtral_encoder.Config.fixed | {"Mp", "Xe"}
    hf_paths: ClassVar = {
        **{
            ours: theirs
            for ours, theirs in voxtral_encoder.Config.hf_paths.items()
            if ours not in ("final_norm", "pos_embed")
        },
        "merger.norm": "ln_post",
        "merger.proj": "proj",
        "merger.ends": "audio_bos_eos_token",
    }

    @property
    def context(self) -> int:
        """max_source_positions, in full chunks."""
        whole = lcm(self.n_window, AVERAGED)
        return max(self.max_source_positions // whole, 1) * whole

    def architecture(self) -> Transformer:
        """A stem, positions, and pre-norm blocks of chunks. Raises ConfigError."""
        hidden = self.hidden_size
        if hidden % 2 or hidden < 4:  # half of them sines, at rates from 1 to 1 / 10,000
            raise ConfigError(f"d_model = {hidden:,} must be even, and at least 4: half are sines, half cosines")
        if self.n_window > self.max_source_positions:
            raise ConfigError(
                f"n_window = {self.n_window:,} positions of a chunk are more than"
                f" max_source_positions = {self.max_source_positions:,}"
            )
        chunk = self.n_window
        return Transformer(
            embed=Stem(bins=self.num_mel_bins, hidden=hidden, every=chunk),
            positions=Positions(rows=self.max_source_positions, hidden=hidden, stored=False, halves=True, every=chunk),
            stacks=(self.stack(key_bias=False, tiles=chunk),),
            head=None,
            **self.behind(),
        )

    def behind(self) -> dict[str, Any]:
        """Means of two positions, their norm, and a product."""
        return {
            "final_norm": None,
            "merger": Averaged(hidden=self.hidden_size, patches=AVERAGED, out=self.output_dim),
        }
