"""Models as people write them by hand, with names of their own; a factory for each, and some that cannot be checked."""

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Heads in one product, and torch's fused attention."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, d = x.shape
        q, k, v = (y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(d, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(y.transpose(1, 2).reshape(batch, tokens, d))
        return out


class Block(nn.Module):
    def __init__(self, d: int, heads: int, f: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(d), Attention(d, heads), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, f), nn.GELU(), nn.Linear(f, d))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT(nn.Module):
    """A GPT-2 with the embeddings and blocks in a dict, as nanoGPT has them; logits of the last position only."""

    def __init__(
        self, d: int = 48, heads: int = 4, f: int = 190, layers: int = 3, vocab: int = 101, *, tied: bool = True
    ) -> None:
        super().__init__()
        blocks = nn.ModuleList([Block(d, heads, f) for _ in range(layers)])
        tables = {"tok": nn.Embedding(vocab, d), "pos": nn.Embedding(64, d)}
        self.body = nn.ModuleDict({**tables, "layers": blocks, "ln_f": nn.LayerNorm(d)})
        self.head = nn.Linear(d, vocab, bias=False)
        if tied:
            self.body["tok"].weight = self.head.weight
        print("built")  # as many do: it belongs on stderr

    def forward(self, ids: Tensor) -> tuple[Tensor, None]:
        x = self.body["tok"](ids) + self.body["pos"](torch.arange(ids.shape[1], device=ids.device))
        for block in self.body["layers"]:  # type: ignore[attr-defined]
            x = block(x)
        return self.head(self.body["ln_f"](x)[:, [-1]]), None


class Norm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Grouped(nn.Module):
    """Grouped heads, multiplied by einsum, with a cache that it returns."""

    def __init__(self, d: int, heads: int, kv: int, size: int) -> None:
        super().__init__()
        self.wq, self.wo = nn.Linear(d, heads * size, bias=False), nn.Linear(heads * size, d, bias=False)
        self.wk, self.wv = nn.Linear(d, kv * size, bias=False), nn.Linear(d, kv * size, bias=False)
        self.size = size

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = (each(x).unflatten(-1, (-1, self.size)) for each in (self.wq, self.wk, self.wv))
        many = q.shape[2] // k.shape[2]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(many, 2)).softmax(-1)
        return self.wo(torch.einsum("bhqk,bkhd->bqhd", scores, v.repeat_interleave(many, 2)).flatten(2)), (k, v)


class Gated(nn.Module):
    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(*sides, bias=False) for sides in ((d, f), (f, d), (d, f)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w2(functional.silu(self.w1(x)) * self.w3(x))
        return out


class Layer(nn.Module):
    def __init__(self, d: int, heads: int, kv: int, size: int, f: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = Grouped(d, heads, kv, size), Gated(d, f)
        self.attention_norm, self.ffn_norm = Norm(d), Norm(d)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        more, cached = self.attention(self.attention_norm(x))
        x = x + more
        return x + self.feed_forward(self.ffn_norm(x)), cached


class Llama(nn.Module):
    """A Llama with the names of its first code; it returns logits and its cache."""

    def __init__(self, heads: int = 6, kv: int = 2, size: int = 10, f: int = 112, layers: int = 3) -> None:
        super().__init__()
        self.tok_embeddings, self.norm = nn.Embedding(101, 48), Norm(48)
        self.layers = nn.ModuleList([Layer(48, heads, kv, size, f) for _ in range(layers)])
        self.output = nn.Linear(48, 101, bias=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        x, cache = self.tok_embeddings(tokens), []
        for layer in self.layers:
            x, cached = layer(x)
            cache.append(cached)
        return self.output(self.norm(x)), cache


class Listed(nn.Module):
    """A Llama of lists of weights, inputs first, multiplied by einsum without a module for a layer or a matmul."""

    def __init__(self, kv: int = 2) -> None:
        super().__init__()

        def each(*shape: int) -> nn.ParameterList:
            return nn.ParameterList([torch.zeros(shape) for _ in range(3)])

        self.embed, self.head = (nn.Parameter(torch.zeros(sides)) for sides in ((101, 48), (48, 101)))
        self.wq, self.wk, self.wv, self.wo = each(48, 60), each(48, kv * 10), each(48, kv * 10), each(60, 48)
        self.gate, self.up, self.down = each(48, 112), each(48, 112), each(112, 48)
        self.first, self.second, self.last = each(48), each(48), nn.Parameter(torch.zeros(48))

    def forward(self, ids: Tensor) -> Tensor:
        def by(x: Tensor, weight: Tensor) -> Tensor:
            return torch.einsum("... d, d f -> ... f", x, weight)

        x = self.embed[ids]
        for at in range(3):
            y = x * self.first[at]
            q, k, v = (by(y, each[at]).unflatten(-1, (-1, 10)).transpose(1, 2) for each in (self.wq, self.wk, self.wv))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + by(mixed.transpose(1, 2).flatten(2), self.wo[at])
            y = x * self.second[at]
            x = x + by(functional.silu(by(y, self.gate[at])) * by(y, self.up[at]), self.down[at])
        return by(x * self.last, self.head)


class Silent(Llama):
    """Returns nothing."""

    def forward(self, tokens: Tensor) -> None:  # type: ignore[override]
        super().forward(tokens)


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Mute(Llama):
    """Raises an exception that has no text."""

    def forward(self, _: Tensor) -> Any:
        raise MuteError


class Closed(Llama):
    """Does not show its parameters."""

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("mine")


class ShortNorm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


class Shift(nn.Module):
    """As large as a norm, and none."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class ShortLayer(Layer):
    attention, feed_forward, attention_norm, ffn_norm = (property(attrgetter(name)) for name in ("a", "m", "n1", "n2"))

    def __init__(self, f: int) -> None:
        nn.Module.__init__(self)
        self.n1, self.a, self.n2, self.m = ShortNorm(48), Grouped(48, 6, 2, 10), ShortNorm(48), Gated(48, f)


class ShortNames(Llama):
    """The same Llama with names that do not mention norms: `n1`, `n2`, `n`."""

    tok_embeddings, layers, norm, output = (property(attrgetter(name)) for name in ("e", "b", "n", "out"))

    def __init__(self, f: int = 112, last: type[nn.Module] = ShortNorm) -> None:
        nn.Module.__init__(self)
        self.e, self.b, self.n = nn.Embedding(101, 48), nn.ModuleList([ShortLayer(f) for _ in range(3)]), last(48)
        self.out = nn.Linear(48, 101, bias=False)


class MisnamedLayer(nn.Module):
    """Names that mean other things elsewhere: `q` is a norm, `lin1` holds q, k and v, `lin3` gate and up."""

    def __init__(self, f: int) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(48, 100, bias=False), nn.Linear(60, 48, bias=False)
        self.lin3, self.lin4 = nn.Linear(48, 2 * f, bias=False), nn.Linear(f, 48, bias=False)
        self.p, self.q = ShortNorm(48), ShortNorm(48)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.lin1(self.p(x)).unflatten(-1, (10, 10)).transpose(1, 2).split([6, 2, 2], 1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.lin2(attended.transpose(1, 2).flatten(2))
        gate, up = self.lin3(self.q(x)).chunk(2, -1)
        return x + self.lin4(functional.silu(gate) * up)


class Misnamed(nn.Module):
    """The same Llama with names that mislead."""

    def __init__(self, f: int = 112) -> None:
        super().__init__()
        self.e, self.layers, self.n = nn.Embedding(101, 48), nn.ModuleList(), ShortNorm(48)
        self.layers.extend(MisnamedLayer(f) for _ in range(3))
        self.out = nn.Linear(48, 101, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.e(tokens)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.out(self.n(x))
        return logits


class Encoded(nn.Module):
    """A GPT-2 of torch's own encoder layers, under a causal mask."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(48, 4, 190, batch_first=True, norm_first=True, bias=bias)
        self.tok, self.pos = nn.Embedding(101, 48), nn.Embedding(64, 48)
        self.enc = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(48), enable_nested_tensor=False)
        self.out = nn.Linear(48, 101, bias=False)
        self.out.weight = self.tok.weight

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        out: Tensor = self.out(self.enc(x, mask=mask))
        return out


def gpt() -> nn.Module:
    return GPT()


def untied() -> nn.Module:
    return GPT(tied=False)


def vectors() -> tuple[nn.Module, tuple[Tensor]]:
    """A module that takes vectors, with an input for it."""
    return nn.Linear(3, 5), (torch.zeros(2, 3),)


def raises() -> nn.Module:
    raise ZeroDivisionError("a mistake of mine")


def leaves() -> nn.Module:
    raise SystemExit(3)


def nothing() -> None:
    pass


def wants(vocab: int, width: int) -> nn.Module:
    return nn.Embedding(vocab, width)


def on_a_card() -> nn.Module:
    return nn.Linear(2, 2, device="cuda")


def numbers() -> nn.Module:
    return nn.Linear(int(torch.ones(1).sum().item()), 2)


def lazy() -> nn.Module:
    return nn.LazyLinear(3)


def empty() -> nn.Module:
    return nn.ReLU()


def pair() -> nn.Module:
    return nn.Transformer(8, 2, 1, 1, 16, batch_first=True)


class Fused(nn.Module):
    """It runs a kernel that is not torch's."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.embed, self.kernel = nn.Embedding(11, 8), kernel

    def forward(self, ids: Tensor) -> Any:
        return self.kernel(self.embed(ids))


def fused() -> nn.Module:
    return Fused(torch.ops.tfacct_tests.mystery)


@torch.library.custom_op("tfacct_tests::mystery", mutates_args=())
def mystery(x: Tensor) -> Tensor:
    """A kernel that nobody counts."""
    return x.clone()


@mystery.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


number = 3


class Twice(Attention):
    """It computes the scores a second time."""

    def forward(self, x: Any) -> Any:
        q = x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
        return super().forward(x) + 0 * (q @ q.transpose(-1, -2)).sum()


class Opaque(Grouped):
    """Grouped attention whose products are called `a`, `b`, `c` and `d`."""

    wq, wk, wv, wo = (property(attrgetter(name)) for name in "abcd")

    def __init__(self, kv: int) -> None:
        torch.nn.Module.__init__(self)
        for name, outputs in zip("abcd", (48, 8 * kv, 8 * kv, 48), strict=True):
            setattr(self, name, torch.nn.Linear(48, outputs, bias=False))
        self.size = 8
