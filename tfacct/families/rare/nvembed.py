"""NV-Embed, and its pooler over learned latents."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import Part
from tfacct.architecture.parts.feed_forward import projections
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.base.record import record
from tfacct.families.decoder import Decoder
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import PositiveInt, StrictStr
from tfacct.families.task_heads import BODY, TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

CONFIGS = {"text_config": "bidir_mistral", "latent_attention_config": "latent_attention"}


@record(kw_only=True)
class LatentPooler(Part):
    """A pooler over learned latents: Lee et al., "NV-Embed" (arXiv 2405.17428), section 3.1, with the matmuls of its
    custom code (LatentAttentionModel).

    Each position attends to `rows` learned latents, after LayerNorms of both, and passes a gated MLP of `width`, after
    another LayerNorm; both results are added to it. The vector of a text is the mean of its positions.
    """

    hidden: Size
    rows: Size
    heads: Size
    head_dim: Size
    width: Size
    eps: float = 1e-5

    reads: ClassVar[str] = "average"
    name: ClassVar[str] = "pooler"
    label: ClassVar[str] = "a pooler with learned latents"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "rows": "Zp", "heads": "Np", "head_dim": "Hz", "width": "Fy"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Zp": "learned rows that the pooler reads",
        "Np": "heads of the pooler",
        "Hz": "size of one head of the pooler",
        "Fy": "width of the pooler's MLP",
    }

    def lines(self, at: str) -> Iterator[Line]:
        """Norms, projections, QKᵀ and PV over the latents, the MLP, and both additions."""
        yield Table(f"{at}.rows", "Zp D", embedding=False)
        yield Pointwise(f"{at}.norm", "B T D", weight="D", bias="D", kind="norm_layer")
        yield Pointwise(f"{at}.rows_norm", "B Zp D", weight="D", bias="D", kind="norm_layer")
        yield Matmul(f"{at}.q_proj", "B T D, D Np Hz -> B T Np Hz")
        yield Matmul(f"{at}.k_proj", "B Zp D, D Np Hz -> B Zp Np Hz")
        yield Matmul(f"{at}.v_proj", "B Zp D, D Np Hz -> B Zp Np Hz")
        yield Matmul(f"{at}.scores", "B T Np Hz, B Zp Np Hz -> B Np T Zp")
        yield Pointwise(f"{at}.softmax", "B Np T Zp", kind="softmax")
        yield Matmul(f"{at}.values", "B Np T Zp, B Zp Np Hz -> B T Np Hz")
        yield Matmul(f"{at}.o_proj", "B T Np Hz, Np Hz D -> B T D")
        yield Pointwise(f"{at}.add", "B T D", kind="sum")
        yield Pointwise(f"{at}.mlp_norm", "B T D", weight="D", bias="D", kind="norm_layer")
        yield from projections(f"{at}.mlp", "Fy", gated=True, bias=True, function="gelu")
        yield Pointwise(f"{at}.mlp_add", "B T D", kind="sum")


class NVEmbed(Decoder):
    """NV-Embed: Mistral's layer as an encoder, and a pooler whose positions attend to learned latents."""

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
    ignored_fields = """add_eos add_pad_token is_mask_instruction padding_side output_normalize
        sliding_window attention_dropout added_tokens_decoder latent_attention"""
    attention_options = dict(causal=False)

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The merged fields of both configs in it. Raises ConfigError."""
        fields = {name: value for name, value in raw.items() if name not in CONFIGS}
        for name, expected in CONFIGS.items():
            nested = raw.get(name) or {}
            if not isinstance(nested, Mapping):
                raise ConfigError(f"{name} must be an object with fields, not {format_value(nested)}")
            kind = nested.get("model_type", expected)
            if kind != expected:
                raise ConfigError(f"{name} of nvembed is of model_type {format_value(kind)}, not {expected}")
            fields = {**{field: value for field, value in nested.items() if field != "architectures"}, **fields}
        return super().read(fields)

    def check(self) -> None:
        self.require({"latent_dim": self.hidden_size, "hidden_dim": self.hidden_size, "mask_type": "b"})

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "head": None}

    def pooler(self, hidden: Any) -> LatentPooler:
        return LatentPooler(
            hidden=hidden,
            rows=self.num_latents_value,
            width=4 * self.latent_dim,
            heads=self.num_cross_heads,
            head_dim=self.cross_dim_head,
        )
