"""DiffLlama, and its differential attention."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import Decoder, Layer
from tfacct.families.family import SAME_AS_QUERY_HEADS
from tfacct.families.fields import StrictBool
from tfacct.families.task_heads import LABELLING
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class DifferentialAttention(Attention):
    """Differential attention: Ye et al., "Differential Transformer" (arXiv 2410.05258), section 2.1, with the matmuls
    of transformers' DiffLlamaAttention.

    Attention runs twice over the same queries and keys: with the values of the first half of the key/value heads, then
    with those of the second half. Each half is repeated for all heads. The results are concatenated per head. A share
    of the results of the second half of the heads is subtracted from those of the first half: exp(a) − exp(b) + a
    constant of the layer, where a and b are dot products of two learned vectors. An RMSNorm without weight (`eps`) of
    each pair of heads precedes the output projection.
    """

    eps: float

    mesh_unsupported: ClassVar[str] = "attention whose heads are subtracted in pairs"
    legend: ClassVar[dict[str, str]] = {axis: Attention.legend[axis] for axis in "DNKGH"}

    def multiples(self) -> dict[str, int]:
        """Key/value heads are split in halves."""
        return {**Attention.multiples(self), "K": 2}

    def lines(self, at: str) -> Iterator[Line]:
        """Lines of attention, those from scores to values twice, and the difference."""
        lines = list(Attention.lines(self, at))
        paths = [line.path for line in lines]
        first, after = paths.index(f"{at}.scores"), paths.index(f"{at}.values") + 1
        twice = [line for line in lines[first:after] if isinstance(line, Matmul | Pointwise)]
        second = [replace(line, path=line.path.replace(f"{at}.", f"{at}.second_", 1)) for line in twice]
        yield from lines[:after]
        yield from second
        for which in ("first", "second"):
            yield Pointwise(f"{at}.{which}_lambda", "H", weight="H", bias="H")
        yield Pointwise(f"{at}.difference", "B T N H")
        yield Pointwise(f"{at}.pair_norm", "B T N H", kind="norm_rms")
        yield from lines[after:]


class DiffLlama(Decoder):
    """DiffLlama: Llama's layer with differential attention, which subtracts the output of one head from that of
    another."""

    sizes = dict(vocab=32000, hidden=2048, mlp=8192, layers=16, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(rms_norm_eps=1e-5)
    attention_bias: StrictBool = False
    task_heads = LABELLING
    ignored_fields = "lambda_std_dev"
    layer_module_names = {"attn.second_scores": "self_attn", "attn.second_values": "self_attn"}
    layer_tensor_names = {
        f"attn.{which}_lambda.{name}": f"self_attn.lambda_{hf_name}{number}"
        for number, which in ((1, "first"), (2, "second"))
        for name, hf_name in (("weight", "q"), ("bias", "k"))
    }

    def attention(self, layer: Layer, **overrides: Any) -> Any:
        kv_heads = self.num_key_value_heads
        if kv_heads % 2:
            raise ConfigError(f"num_key_value_heads = {kv_heads:,} must be even: values are halved between them")
        return DifferentialAttention.of(super().attention(layer), eps=self.rms_norm_eps)
