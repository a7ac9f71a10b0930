"""The reference model is real: with the same weights it gives the logits of the transformers classes. Kind: oracle."""

import sys

import pytest

from tests.helpers.lazy import lazy
from tests.helpers.logits import BATCH, CONFIGS, MADE, TOKENS, Float64, exact_angles, gap, ours, theirs
from tests.helpers.models import by_kind, kind_of
from tfacct.architecture.parts import DeltaNet
from tfacct.families.gemma import AltUp
from tfacct.families.rare.recurrent_gemma import RGLRU
from tfacct.loading.model import load_model

torch, transformers, model = lazy("torch"), lazy("transformers"), lazy("tfacct.reference.model")


def paired(name: str):
    """A model, the class's own, and tokens for both."""
    about = load_model("tiny", CONFIGS[name])
    torch.manual_seed(7)
    tokens = torch.randint(0, about.architecture.embed.vocab, (BATCH, TOKENS))
    return about, theirs(CONFIGS[name]), tokens


def in_its_dtype(name: str):
    """The same; XGLM's class masks by the lowest number of the residual stream's dtype, in the default dtype."""
    torch.set_default_dtype(torch.float64 if name.startswith("xglm") else torch.float32)
    try:
        yield paired(name)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(params=CONFIGS)
def pair(request: pytest.FixtureRequest):
    yield from in_its_dtype(request.param)


@pytest.fixture(params=by_kind(CONFIGS, lambda name: kind_of(MADE[name])))
def kind_pair(request: pytest.FixtureRequest):
    """For tests of the reference model alone: every kind of layer; the others are slow."""
    yield from in_its_dtype(request.param)


def exact_decays(stranger) -> None:
    """MiniMax's class computes the decays of lightning attention in float32: recompute them in the default dtype."""
    for module in stranger.modules():
        if hasattr(module, "slope_rate"):
            module.slope_rate = module.get_slope_rate()
            made = module.decay_factors(module.slope_rate)
            module.query_decay, module.key_decay, module.diagonal_decay = made


def exact_scales(body, hidden: int) -> None:
    """Gemma 3n's class stores these factors in float32."""
    for owner in (layer.altup for layer in body.layers):
        owner.router_input_scale = torch.tensor(1 / hidden, dtype=torch.float64)
    body.per_layer_projection_scale = torch.tensor(hidden**-0.5, dtype=torch.float64)
    body.per_layer_input_scale = torch.tensor(2**-0.5, dtype=torch.float64)


FLOAT32 = 2**-24
"""Relative error of one rounding to float32."""


def test_logits_are_those_of_the_class(pair) -> None:
    """Both run in float64, but the class casts to float32: at most seven tensors in a block (norms, queries and keys,
    cosines and sines, softmax, router), each rounded twice, and the deepest model here has six blocks."""
    about, stranger, tokens = pair
    bound = 6 * 7 * 2 * FLOAT32
    if about.architecture.having(DeltaNet):  # its state is float32, so an error reaches every later token
        bound *= TOKENS
    if about.family == "muse_spark_text":  # three norms in a row
        bound *= 3
    with torch.no_grad():
        assert gap(ours(about, stranger)(tokens)[0], stranger(tokens).logits) <= bound


def test_without_casts_of_the_class_logits_are_equal_to_rounding(kind_pair, monkeypatch: pytest.MonkeyPatch) -> None:
    about, stranger, tokens = kind_pair
    module = sys.modules[type(stranger).__module__]
    monkeypatch.setattr(module, "torch", Float64())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    exact_angles(about, stranger)
    if about.architecture.having(RGLRU):  # its class's sum is a number of float32 by default
        monkeypatch.setattr(module.RecurrentGemmaRglru._rnn_scan, "__defaults__", (torch.float64,))
    embed = about.architecture.embed
    if embed.scaled and hasattr(
        stranger.base_model, "embed_tokens"
    ):  # the class stores √hidden, or its own factor, in float32
        factor = embed.hidden**0.5 if embed.factor is None else embed.factor
        stranger.base_model.embed_tokens.embed_scale = torch.tensor(factor, dtype=torch.float64)
    if (rows := about.architecture.per_layer) is not None:  # and √width
        stranger.model.embed_tokens_per_layer.embed_scale = torch.tensor(rows.width**0.5, dtype=torch.float64)
    if isinstance(about.architecture.streams, AltUp):
        exact_scales(stranger.model, about.architecture.embed.hidden)
    mine = ours(about, stranger)
    try:
        torch.set_default_dtype(torch.float64)  # that of quotients of positions
        exact_decays(stranger)
        with torch.no_grad():
            assert gap(mine(tokens)[0], stranger(tokens).logits) <= 1e-9
    finally:
        torch.set_default_dtype(torch.float32)


def test_in_steps_fused_or_with_recomputation_it_is_the_same_and_a_wrong_weight_is_not(kind_pair) -> None:
    """Logits of decode steps and chunks with a cache, of fused attention, and gradients of recomputed layers. One
    changed weight moves the logits far more than the bound of the comparison with the class."""
    about, stranger, tokens = kind_pair
    mine, fused = ours(about, stranger), ours(about, stranger, fused=True)
    with torch.no_grad():
        whole, *_ = mine(tokens)
        past: tuple = ()
        parts = []
        for start, end in [(0, 11), (11, 20), *((i, i + 1) for i in range(20, TOKENS))]:
            logits, *past = mine(tokens[:, start:end], tuple(past), torch.arange(start, end))
            parts.append(logits)
            names = (f"blocks.{i}.{state}" for i, block in enumerate(mine.blocks) for state in block.states)
            cached = {name: cache.numel() for name, cache in zip(names, past, strict=True)}
            assert cached == about.ledger.states({"B": BATCH, "T": end - start, "S": end}, unfolded=True)
        assert gap(torch.cat(parts, dim=1), whole) <= 1e-12
        assert gap(fused(tokens)[0], whole) <= 1e-12
        first, *past = fused(tokens[:, :9])
        second, *past = fused(tokens[:, 9:28], tuple(past), torch.arange(9, 28))
        last, *_ = fused(tokens[:, 28:], tuple(past), torch.arange(28, TOKENS))
        assert gap(torch.cat((first, second, last), dim=1), whole) <= 1e-12
    gradients = []
    for mine.recompute in (False, True):
        mine.zero_grad()
        mine(tokens)[0].sum().backward()
        wanted = (parameter.grad for parameter in mine.parameters() if parameter.requires_grad)
        gradients.append([torch.empty(0) if grad is None else grad for grad in wanted])  # an indexer's choice has none
    assert all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-12) for a, b in zip(*gradients, strict=True))
    with torch.no_grad():
        block = mine.blocks[0]
        mixer = getattr(block, block.names[0])
        names = ("x_proj", "k_proj", "o_proj", "out_proj", "kv_proj")
        next(getattr(mixer, name) for name in names if hasattr(mixer, name)).weight[0, 0] += 0.5
        assert gap(mine(tokens)[0], stranger(tokens).logits) > 1e-5
