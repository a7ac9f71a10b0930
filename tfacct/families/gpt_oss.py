"""OpenAI's open models since gpt-oss."""

from collections.abc import Mapping
from typing import Any

from tfacct.families.decoder import SINK_MODULES, SINK_TENSORS, Decoder, Layer, Window, expert_modules, expert_tensors
from tfacct.families.family import ABSENT
from tfacct.families.fields import PositiveInt, StrictBool
from tfacct.families.layer_kinds import LayerTypes
from tfacct.families.task_heads import BODY, LABELLING, TOKENS, TaskHead


class GptOssBase(Decoder):
    """Sinks, and experts with biases in every layer."""

    sizes = dict(head_dim=64, context=131072)
    defaults = dict(rms_norm_eps=1e-5, rope_theta=150_000.0)
    num_local_experts: PositiveInt = 128
    num_experts_per_tok: PositiveInt = 4
    attention_bias: StrictBool = True
    attribute_map = {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
    ignored_fields = "initial_context_length swiglu_limit swiglu_alpha"
    transposed_weights = ("blocks.*.mlp.experts.",)
    layer_module_names = {**expert_modules(router="router"), **SINK_MODULES}
    layer_tensor_names = {
        **SINK_TENSORS,
        **expert_tensors(),
        **{name.replace("weight", "bias"): f"{hf_name}_bias" for name, hf_name in expert_tensors().items()},
    }
    all_layers_have_experts, expert_count, expert_width = True, "num_local_experts", "intermediate_size"
    attention_options = dict(sinks=True)
    experts_options = dict(bias=True)


class GptOss(GptOssBase):
    """gpt-oss: every other layer has a window; learned sinks, biases on all projections, experts in every layer."""

    sizes = dict(mlp=2880, kv_heads=8)
    sliding_window: Window | None = 128
    layer_types: LayerTypes | None = None
    task_heads = LABELLING

    def layers(self) -> list[Layer]:
        return [Layer(window) for window in self.windows(lambda number: number % 2 == 0, self.sliding_window)]


class OpenAIPrivacyFilter(GptOssBase):
    """OpenAI's privacy filter: gpt-oss's layers as an encoder that labels tokens; every layer has a bidirectional
    window."""

    sizes = dict(vocab=200064, hidden=640, mlp=640, layers=8, heads=14, kv_heads=2)
    sliding_window: PositiveInt = 128
    reference_only = "tie_word_embeddings"  # there is no head
    task_heads = {"ForTokenClassification": TOKENS, "Model": BODY}
    module_names = {"lm_head": ABSENT}
    attention_options = dict(causal=False)

    def choose_task_head(self, task_head: TaskHead, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The task head. The class default is 33 labels: four tags for each of eight kinds of spans, and none."""
        defaulted = super().choose_task_head(task_head, raw)
        if "num_labels" not in defaulted:
            return defaulted
        self._labels = 33
        return {"num_labels": 33}

    def layers(self) -> list[Layer]:
        return [Layer(2 * self.sliding_window + 1)] * self.num_hidden_layers

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "head": None}
