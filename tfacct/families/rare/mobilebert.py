"""MobileBERT, and its parts: attention and MLPs in a bottleneck, embeddings of three tokens, a longer head, NoNorm."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.bert import POOLED, BertBase, mlm_head_modules
from tfacct.families.family import ABSENT
from tfacct.families.fields import PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table

LAYER = "mobilebert.encoder.layer.*"


@record(kw_only=True)
class NoNorm(Norm):
    """Scale and shift, in place of a norm (transformers' NoNorm)."""

    kind: Literal["layer", "rms"] = "layer"

    def lines(self, at: str) -> Iterator[Line]:
        """Scale and shift."""
        yield Pointwise(at, "B T D", weight="D", bias="D")


@record(kw_only=True)
class TrigramEmbedding(Embedding):
    """Token embedding: the embeddings of the next token, of a token and of the one before, concatenated and projected
    (MobileBertEmbeddings)."""

    legend: ClassVar[dict[str, str]] = {**Embedding.legend, "Da": "three token embeddings, concatenated, 3 · De"}
    made: ClassVar[dict[str, str]] = {"Da": "3 · De"}

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding, and its projection."""
        yield Table(at, "V De")
        yield Matmul(f"{at}.project", "B T Da, Da D -> B T D", bias=self.bias)


@record(kw_only=True)
class ExtendedHead(Head):
    """Head over the token embedding, extended to the hidden size by its own matrix of `rest` columns
    (MobileBertLMPredictionHead)."""

    rest: Size

    axis_names: ClassVar[dict[str, str]] = {**Head.axis_names, "rest": "Df"}
    legend: ClassVar[dict[str, str]] = {**Head.legend, "Df": "columns of the head that the token embedding lacks"}
    made: ClassVar[dict[str, str]] = {"Dt": "De + Df"}

    def derived(self) -> dict[str, str]:
        """The result of the transform."""
        return self.made

    @property
    def row(self) -> str:
        """Axis of the result of the transform."""
        return "Dt"

    def _logits(self, at: str, weight: str | None) -> Iterator[Line]:
        yield Matmul(at, "B O De, De V -> B O V", weight=weight, bias=self.bias)
        yield Matmul(f"{at}.rest", "B O Df, Df V -> B O V")


BOTTLENECK = {"Db": "width of a token in a bottleneck"}


@record(kw_only=True)
class BottleneckAttention(Attention):
    """Attention in a bottleneck: Sun et al., "MobileBERT" (arXiv 2004.02984), section 3.1 and table 1, with the matmuls
    of transformers' MobileBertLayer.

    A projection makes each token `narrow`; the result of attention is added to it. Queries and keys come from a second
    projection, values from the whole token. NoNorm takes the place of norms. The result is the narrow token.
    """

    narrow: Size

    mesh_unsupported: ClassVar[str] = "bottleneck attention and MLPs"
    axis_names: ClassVar[dict[str, str]] = {**Attention.axis_names, "narrow": "Db"}
    legend: ClassVar[dict[str, str]] = {axis: Attention.legend[axis] for axis in "DNKGH"} | BOTTLENECK

    def lines(self, at: str) -> Iterator[Line]:
        """Both projections to the bottleneck, lines of attention, and the sum."""
        yield from self._narrowed(f"{at}.input")
        yield from self._narrowed(f"{at}.shared")
        for line in Attention.lines(self, at):
            yield self._of_narrow(at, line)
        yield from _added(f"{at}.narrow_")

    @staticmethod
    def _narrowed(at: str) -> Iterator[Line]:
        yield Matmul(at, "B T D, D Db -> B T Db", bias=True)
        yield Pointwise(f"{at}_norm", "B T Db", weight="Db", bias="Db", kind="norm_layer")

    @staticmethod
    def _of_narrow(at: str, line: Line) -> Line:
        """A line of attention over narrow tokens; only values come from whole ones."""
        narrow = {f"{at}.{which}_proj" for which in "qko"}
        return line.renamed({"D": "Db"}) if isinstance(line, Matmul) and line.path in narrow else line


@record(kw_only=True)
class BottleneckMLPs(FeedForward):
    """MLPs in a bottleneck, `count` of them, one after the other: the result of each is added to its input, then
    NoNorm. A projection makes the token wide again."""

    narrow: Size
    count: int = 1

    mesh_unsupported: ClassVar[str] = "bottleneck attention and MLPs"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F", "narrow": "Db"}
    legend: ClassVar[dict[str, str]] = {axis: FeedForward.legend[axis] for axis in "DF"} | BOTTLENECK

    def lines(self, at: str) -> Iterator[Line]:
        """The MLPs, and the projection after them."""
        for number in range(self.count):
            yield from self._mlp(f"{at}.networks.{number}.")
        yield Matmul(f"{at}.output", "B T Db, Db D -> B T D", bias=True)

    def _mlp(self, at: str) -> Iterator[Line]:
        yield Matmul(f"{at}up_proj", "B T Db, Db F -> B T F", bias=True)
        yield Pointwise(f"{at}act", "B T F", kind="activation", function=self.activation)
        yield Matmul(f"{at}down_proj", "B T F, F Db -> B T Db", bias=True)
        yield from _added(at)


def _added(at: str) -> Iterator[Line]:
    """A result added to the narrow token, and NoNorm of the sum."""
    yield Pointwise(f"{at}add", "B T Db", kind="sum")
    yield Pointwise(f"{at}norm", "B T Db", weight="Db", bias="Db", kind="norm_layer")


class MobileBert(BertBase):
    """MobileBERT: BERT's encoder; each layer projects tokens to a narrower width and back, and has several MLPs."""

    sizes = dict(hidden=512, mlp=512, layers=24, heads=4)
    defaults = dict(hidden_act="relu")
    type_vocab_size: PositiveInt = 2
    embedding_size: PositiveInt = 128
    intra_bottleneck_size: PositiveInt = 128
    num_feedforward_networks: PositiveInt = 4
    classifier_activation: StrictBool = True
    trigram_input: StrictBool = True
    use_bottleneck: StrictBool = True
    use_bottleneck_attention: StrictBool = False
    key_query_shared_bottleneck: StrictBool = True
    normalization_type: StrictStr = "no_norm"
    true_hidden_size: PositiveInt | None = None

    dropouts = {}
    required_values = {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "normalization_type": "no_norm",
    }
    reference_only = "true_hidden_size"
    base_model_prefix = "mobilebert"
    task_heads = POOLED
    module_names = {
        **mlm_head_modules("cls.predictions", "transform.dense", "transform.LayerNorm"),
        "lm_head": "cls.predictions",
        "lm_head.rest": "cls.predictions",
        "embed.project": ".embeddings.embedding_transformation",
    }
    layer_module_names = {
        **dict.fromkeys(("attn_norm", "mlp.up_proj", "mlp.down_proj"), ABSENT),
        "attn.input": "bottleneck.input.dense",
        "attn.input_norm": "bottleneck.input.LayerNorm",
        "attn.shared": "bottleneck.attention.dense",
        "attn.shared_norm": "bottleneck.attention.LayerNorm",
        "attn.narrow_norm": "attention.output.LayerNorm",
        "mlp.output": "output.bottleneck.dense",
        "mlp_norm": "output.bottleneck.LayerNorm",
    }
    tensor_names = {"lm_head.bias": "cls.predictions.bias", "lm_head.rest.weight": "cls.predictions.dense.weight"}
    transposed_weights = ("lm_head.rest",)
    head_dim = property(lambda self: self.divide("intra_bottleneck_size", "num_attention_heads"))
    embedding_width = None  # a projection of three adjacent embeddings makes them as wide as the model

    @property
    def task_head(self) -> TaskHead:
        """Without an activation the pooler is the first token's vector."""
        head = super().task_head
        if self.classifier_activation or not head.pooler:
            return head
        paths = {path: hf_path for path, hf_path in head.paths.items() if path != "pooler"}
        return replace(head, pooler=False, first=head.head == "classes", paths=paths)

    def hf_module_names(self) -> dict[str, str]:
        """With the MLPs, of which the last has other names."""
        names = dict(super().hf_module_names())
        for number in range(self.num_feedforward_networks):
            last = number == self.num_feedforward_networks - 1
            module = LAYER if last else f"{LAYER}.ffn.{number}"
            at = f"blocks.*.mlp.networks.{number}"
            names |= {f"{at}.up_proj": f"{module}.intermediate.dense", f"{at}.down_proj": f"{module}.output.dense"}
            names[f"{at}.norm"] = f"{module}.output.LayerNorm"
        return names

    def check(self) -> None:
        super().check()
        self.require_if_given({"true_hidden_size": self.intra_bottleneck_size})
        hidden, width = self.hidden_size, self.embedding_size
        if width >= hidden:
            raise ConfigError(
                f"embedding_size = {width:,} is not less than hidden_size = {hidden:,}, because the head has a matrix"
                " for the rest"
            )

    def norm(self) -> Norm:
        """Scale and shift."""
        return NoNorm(hidden=self.hidden_size)

    def attention(self, **overrides: Any) -> BottleneckAttention:
        return BottleneckAttention.of(super().attention(), narrow=self.intra_bottleneck_size)

    def mlp(self, **overrides: Any) -> BottleneckMLPs:
        sizes = {"narrow": self.intra_bottleneck_size, "count": self.num_feedforward_networks}
        return BottleneckMLPs.of(super().mlp(bias=False), **sizes)

    def block(self, **overrides: Any) -> Block:
        """The MLPs read the result of attention, and their result is added to the residual stream."""
        sublayers = (Sublayer(self.attention(), gives="next"), Sublayer(self.mlp(), self.norm()))
        return Block(sublayers, order="post")

    def embedding(self) -> Embedding:
        """A projection of each token's embedding and of those next to it."""
        width = self.embedding_size
        return TrigramEmbedding(vocab=self.vocab_size, hidden=self.hidden_size, width=width, bias=True)

    def embedding_norm(self) -> Norm:
        return self.norm()

    def head(self) -> Head:
        """Logits over the embedding, extended by a matrix for the missing columns."""
        width = self.embedding_size
        head = replace(super().head(), width=width)
        return ExtendedHead.of(head, rest=self.hidden_size - width)
