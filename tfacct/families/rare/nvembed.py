"""NV-Embed."""

from collections.abc import Mapping
from typing import Any

from tfacct.architecture.parts import LatentReader
from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import Decoder
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import PositiveInt, StrictStr
from tfacct.families.task_heads import BODY, TaskHead

CONFIGS = {"text_config": "bidir_mistral", "latent_attention_config": "latent_attention"}


class NVEmbed(Decoder):
    """NV-Embed: Mistral's block as an encoder, and a pooler whose positions attend to learned latents."""

    sizes = dict(vocab=32000, hidden=4096, mlp=14336, layers=32, heads=32, kv_heads=8, context=131072)
    num_latents_value: PositiveInt = 512
    num_cross_heads: PositiveInt = 8
    cross_dim_head: PositiveInt = 4096
    latent_dim: PositiveInt = 4096
    hidden_dim: PositiveInt = 4096
    mask_type: StrictStr = "b"
    has_hf_class = False
    task_heads = {"Model": TaskHead("", BODY.head, pooler=True)}
    reference_only = "latent_dim hidden_dim"
    ignored_fields = """add_eos add_pad_token is_mask_instruction padding_side output_normalize tie_word_embeddings
        sliding_window attention_dropout added_tokens_decoder latent_attention"""
    attention_options = dict(causal=False)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The fields of both configs in it together. Raises ConfigError."""
        whole = {name: value for name, value in raw.items() if name not in CONFIGS}
        for name, expected in CONFIGS.items():
            nested = raw.get(name) or {}
            if not isinstance(nested, Mapping):
                raise ConfigError(f"{name} must be an object of fields, not {format_value(nested)}")
            kind = nested.get("model_type", expected)
            if kind != expected:
                raise ConfigError(f"{name} of nvembed is of model_type {format_value(kind)}, not {expected}")
            whole = {**{field: value for field, value in nested.items() if field != "architectures"}, **whole}
        return super().read(whole)

    def check(self) -> None:
        self.require({"latent_dim": self.hidden_size, "hidden_dim": self.hidden_size, "mask_type": "b"})

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "head": None}

    def pooler(self, hidden: Any) -> LatentReader:
        sizes: dict[str, Any] = {"heads": self.num_cross_heads, "head_dim": self.cross_dim_head}
        return LatentReader(hidden=hidden, rows=self.num_latents_value, width=4 * self.latent_dim, **sizes)
