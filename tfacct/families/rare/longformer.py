"""Longformer."""

from dataclasses import replace

from tfacct.architecture.transformer import Transformer
from tfacct.families.bert import ENCODING, Roberta
from tfacct.families.fields import PositiveIntOrList
from tfacct.families.rare.sliding_chunks import chunk_attention_modules, window_sizes, with_windows


class Longformer(Roberta):
    """Longformer: RoBERTa's encoder with attention in windows that overlap, over texts padded to whole windows."""

    defaults = dict(vocab_size=30522)
    attention_window: PositiveIntOrList = 512
    ignored_fields = "attention_mode ignore_attention_mask onnx_export"
    task_heads = {name: ENCODING[name] for name in ("ForMaskedLM", "Model", "ForTokenClassification")}
    base_model_prefix = "longformer"
    layer_module_names = chunk_attention_modules("attention.self")

    def architecture(self) -> Transformer:
        windows = window_sizes(self.attention_window, self.num_hidden_layers, "num_hidden_layers", "a text")
        model = super().architecture()
        return replace(model, stacks=with_windows(model.stacks[0].block, windows))
