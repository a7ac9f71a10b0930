"""AST: ViT's blocks over patches of a spectrogram that overlap, with DeiT's two tokens in front."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Patches, Picked, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import vit
from tfacct.families._base import Count, Real, Switch
from tfacct.families._endings import Ending
from tfacct.families._towers import Tower

RELEASED = "2021-04"

BODY = "audio_spectrogram_transformer."
LISTENING = Ending(
    "AutoModelForAudioClassification",
    "classes",
    pooler=True,
    bias=True,
    paths={"pooler.norm": "classifier.layernorm", "classifier": "classifier.dense"},
    gives=False,
)


class Config(Tower):
    """`ASTConfig`, with its class's defaults: `ASTModel`, or the class that `architectures` names."""

    layer_norm_eps: Real = 1e-12
    patch_size: Count = 16
    qkv_bias: Switch = True
    frequency_stride: Count = 10
    time_stride: Count = 10
    max_length: Count = 1024
    num_mel_bins: Count = 128

    stems: ClassVar = ("AST",)
    body: ClassVar = BODY
    class_source_whole: ClassVar = True
    fixed: ClassVar = Tower.fixed | {"Xc", "Cc"}
    in_files: ClassVar = vit.Config.in_files
    heads: ClassVar[Mapping[str, Ending]] = {
        "Model": Ending("AutoModel", "none", pooler=True, body=""),
        "ForAudioClassification": LISTENING,
    }
    hf_paths: ClassVar = {ours: theirs.replace("vit.", BODY, 1) for ours, theirs in vit.Config.hf_paths.items()}
    hf_tensors: ClassVar = {
        **{ours: theirs.replace("vit.", BODY, 1) for ours, theirs in vit.Config.hf_tensors.items()},
        "embed.further.weight": f"{BODY}embeddings.distillation_token",
    }

    @property
    def context(self) -> int:
        """Patches of a spectrogram, and both tokens. Raises ConfigError."""
        sides = ("num_mel_bins", self.num_mel_bins), ("max_length", self.max_length)
        for name, side in sides:
            if side < self.patch_size:
                raise ConfigError(f"{name} {side:,} is smaller than patch_size {self.patch_size:,}")
        strides = self.frequency_stride, self.time_stride
        high, wide = ((side - self.patch_size) // step + 1 for (_, side), step in zip(sides, strides, strict=True))
        return high * wide + 2

    def pooler(self, hidden: Any) -> Picked:
        """Mean of both tokens' vectors, behind a norm in front of classes."""
        both = Picked(hidden=hidden, reads="both")
        return replace(both, norm_eps=self.layer_norm_eps) if self.ending == LISTENING else both

    def architecture(self) -> Transformer:
        """Patches of one channel, both tokens, positions, pre-norm blocks and a norm."""
        hidden = self.hidden_size
        return Transformer(
            embed=Patches(channels=1, pixels=self.patch_size**2, hidden=hidden, front=2, taught=True),
            positions=Positions(rows=self.context, hidden=hidden),
            stacks=(self.stack(qkv_bias=self.qkv_bias),),
            final_norm=self.norm(),
            head=None,
        )
