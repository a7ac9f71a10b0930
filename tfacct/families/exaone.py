"""LG's EXAONE models."""

from pydantic import Field

from tfacct.architecture.parts import QKNorm
from tfacct.base.errors import ConfigError
from tfacct.families.decoder import NORMS_AFTER, QK_NORMS, Decoder, Layer, SharedExperts, Window
from tfacct.families.fields import NonNegativeInt, PositiveInt, StrictStr
from tfacct.families.layer_kinds import LayerTypes, MlpLayerTypes
from tfacct.families.llama import OwnCodeLlama
from tfacct.families.task_heads import LABELLING


class Exaone(OwnCodeLlama):
    """EXAONE 3, 3.5 and Deep: Llama's layer, with other names of fields."""

    sizes = dict(
        vocab=102400,
        hidden=2048,
        mlp=Field(default_factory=lambda fields: 4 * fields["hidden_size"]),
        layers=32,
        heads=32,
    )
    defaults = dict(tie_word_embeddings=True, rms_norm_eps=1e-5)
    class_prefixes = ("Exaone", "Llama")
    attribute_map = {
        "num_layers": "num_hidden_layers",
        "activation_function": "hidden_act",
        "layer_norm_epsilon": "rms_norm_eps",
    }
    heads_fill_hidden_size = True


class ExaoneWindows(Decoder):
    """Norms of queries and keys; windows in three layers of four, the others then have no rotary embedding."""

    sizes = dict(vocab=102400, hidden=4096, mlp=16384, layers=32, heads=32, kv_heads=32, context=2048)
    defaults = dict(rms_norm_eps=1e-5)
    sliding_window: Window | None = 4096
    sliding_window_pattern: NonNegativeInt | StrictStr | None = 4
    layer_types: LayerTypes | None = None
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0)

    def has_window(self, number: int) -> bool:
        """By sliding_window_pattern. Raises ConfigError."""
        if isinstance(self.sliding_window_pattern, str):
            raise ConfigError(
                f"sliding_window_pattern = {self.sliding_window_pattern!r} does not determine which layers have the"
                " window",
                "also give layer_types, as published configs do",
            )
        if not self.sliding_window or not self.sliding_window_pattern:
            return False
        return (number + 1) % self.sliding_window_pattern != 0

    def layers(self) -> list[Layer]:
        windows = self.windows(self.has_window, self.sliding_window)
        return [Layer(window, rotary=window is not None or not self.sliding_window) for window in windows]


class Exaone4(ExaoneWindows):
    """EXAONE 4: norms after attention and MLP instead of before, norms of queries and keys; three layers of four have a
    window, the others have no rotary embedding."""

    task_heads = LABELLING

    layer_module_names = NORMS_AFTER
    norms = "after"


class ExaoneMoe(SharedExperts, ExaoneWindows):
    """K-EXAONE: EXAONE 4's attention, with norms before attention and MLP; experts and shared experts after the first
    layers."""

    defaults = dict(moe_intermediate_size=1024)
    sliding_window: Window = 4096
    num_experts: PositiveInt = 64
    num_shared_experts: PositiveInt = 1
    first_k_dense_replace: NonNegativeInt = 1
    mlp_layer_types: MlpLayerTypes | None = None
    attribute_map = {"num_local_experts": "num_experts"}
    ignored_fields = "scoring_func topk_method"
    expert_count, shared_expert_count = "num_experts", "num_shared_experts"

    def moe_layers(self) -> list[bool]:
        """An empty mlp_layer_types counts as absent."""
        if self.mlp_layer_types == []:
            return [number >= self.first_k_dense_replace for number in range(self.num_hidden_layers)]
        return super().moe_layers()
