"""The reference model is real: with the same weights it gives the logits of the transformers classes. Kind: oracle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.families import LOGITS, TINY
from tests.helpers.lazy import lazy
from tests.helpers.logits import BATCH, MADE, TOKENS, gap, ours, theirs, varied
from tests.helpers.models import by_kind, kind_of
from tfacct.architecture.parts import DeltaNet, Patches, Stem
from tfacct.loading.model import LoadedModel, load_model

torch, rotary = lazy("torch"), lazy("tfacct.reference.rotary")

SOURCE = 23
FLOAT32 = 2**-24
"""Relative error of one rounding to float32."""


class Pair:
    """The reference model and the class's of a config, with the same weights and inputs."""

    def __init__(self, config: dict) -> None:
        self.about: LoadedModel = load_model("tiny", config)
        self.stranger: Any = theirs(config)
        self.decodes = self.about.has_cache and self.about.source is None
        raised = not self.decodes and not self.about.family.endswith("t5")
        with torch.no_grad():  # T5's scores are not scaled: larger ones would show that its class softens in float32
            for name, parameter in self.stranger.named_parameters() if raised else ():
                if "norm" in name.lower() and name.endswith("weight"):
                    parameter += 1  # near one: what a source says is not lost on its way through many norms
        if self.about.family == "fsmt":  # whose class makes its mask in float32, where float64's least has no place
            sys.modules[type(self.stranger).__module__].fill_with_neg_inf = lambda mask: mask.fill_(-1e300)
        self.image = None
        torch.manual_seed(7)
        if isinstance(self.about.architecture.embed, Patches):
            self.image, self.tokens = pictured(config)
        elif isinstance(self.about.architecture.embed, Stem):
            frames = 2 * self.about.context
            self.tokens = torch.randn(BATCH, config["num_mel_bins"], frames, dtype=torch.float64)
        else:
            self.tokens = torch.randint(0, self.about.architecture.embed.vocab, (BATCH, TOKENS))
        reading = self.about.architecture.encoder
        rows = None if reading is None else getattr(reading.embed, "vocab", None)
        read = config.get("vocab_size") if rows is None else rows
        self.source = torch.randint(0, read, (BATCH, SOURCE)) if self.about.source else None
        self.seen = SOURCE
        if self.source is not None and self.about.config.hf_fixed_source:  # frames of audio
            self.seen = self.about.source
            self.source = torch.randn(BATCH, config["num_mel_bins"], 2 * self.seen, dtype=torch.float64)
        self.made = self.source is not None and self.about.architecture.encoder.given
        if self.made:  # another model has read it
            self.source = torch.randn(BATCH, SOURCE, config["hidden_size"], dtype=torch.float64)
        for given in (self.tokens, self.source) if self.source is not None else (self.tokens,):
            # Padding has no position in RoBERTa's class, and M2M-100's.
            given[given == getattr(self.stranger.config, "pad_token_id", None)] += 1
        if self.about.family == "clip_text_model":  # whose class takes the largest for the end of the text
            self.tokens[:, -1] = config["vocab_size"] - 1
            self.tokens[:, :-1].clamp_(max=config["vocab_size"] - 2)

    def logits(self) -> torch.Tensor:
        if self.about.family == "gemma4_vision":  # whose class is given patches and their places, column and row
            count = self.tokens.shape[1]
            side, places = round(count**0.5), rotary.in_tiles(torch.arange(count), self.about.config.tiles)
            columns_and_rows = torch.stack((places % side, places // side), dim=-1).expand(BATCH, -1, -1)
            given = self.tokens / 2 + 0.5  # it makes −1 to 1 of what is 0 to 1
            rows = self.stranger(pixel_values=given, pixel_position_ids=columns_and_rows).last_hidden_state
            return rows.unflatten(0, (BATCH, -1))
        if self.about.family in ("minimax_m3_vl_vision", "kimi_k25_vision", "ernie4_5_vl_moe_vision"):
            side, given = round(self.tokens.shape[1] ** 0.5), self.tokens.flatten(0, 1)
            if self.about.family == "kimi_k25_vision":  # whose class is given pictures of patches
                edge = self.about.config.patch_size
                given = given.unflatten(1, (3, edge, edge))
            output = self.stranger(given, grid_thw=torch.tensor([[1, side, side]] * BATCH))
            return output.last_hidden_state.reshape(BATCH, side**2, -1)
        bare = self.image is not None and not self.image.numel()  # its class is given patches, of all images in one row
        if self.about.architecture.merger is not None and bare:
            return torch.cat([*self.merged()], dim=1)
        if self.about.family == "siglip2_vision_model":  # whose class is given the patches
            side = round(self.tokens.shape[1] ** 0.5)
            given = {"pixel_attention_mask": None, "spatial_shapes": torch.tensor([[side, side]] * BATCH)}
            return result(self.stranger(pixel_values=self.tokens, **given), self.about)
        if self.image is not None:
            reads = "input_values" if self.about.family == "audio-spectrogram-transformer" else "pixel_values"
            output = result(self.stranger(**{reads: self.image}), self.about)
            # Pixtral's class puts all images into one sequence.
            return output.reshape(BATCH, -1, output.shape[-1]) if output.dim() == 3 else output
        if self.about.family == "qwen2_5_omni_audio_encoder":  # whose class is given all frames in one row
            lengths = torch.full((BATCH,), self.tokens.shape[2])
            given = self.tokens.transpose(0, 1).flatten(1)
            return self.stranger(given, feature_lens=lengths).last_hidden_state.unflatten(0, (BATCH, -1))
        if self.about.family == "audioflamingo3_encoder":  # whose class takes a mask of frames
            return result(self.stranger(self.tokens, torch.ones_like(self.tokens[:, 0])), self.about)
        if self.source is None:
            return result(self.stranger(self.tokens), self.about)
        if self.made:
            return self.stranger(self.tokens, cross_attention_states=self.source).logits
        # FSMT's class has no causal mask if it uses a cache.
        return self.stranger(self.source, decoder_input_ids=self.tokens, use_cache=False).logits

    def merged(self) -> Iterator[torch.Tensor]:
        """Rows of each merger, in the order of our patches. The class takes them by the tiles that are merged."""
        *outer, inner = self.about.config.tiles
        count = self.tokens.shape[1]
        side = round(count**0.5)
        places, theirs = (rotary.in_tiles(torch.arange(count), tiles) for tiles in ((*outer, inner), (inner,)))
        given = self.tokens[:, places.argsort()[theirs]].flatten(0, 1)
        output = self.stranger(given, grid_thw=torch.tensor([[1, side, side]] * BATCH))
        order = rotary.in_tiles(torch.arange(count // inner**2), tuple(tile // inner for tile in outer))
        for rows in (output["pooler_output"], *(output.get("deepstack_features") or ())):
            yield rows.unflatten(0, (BATCH, -1))[:, order]

    def mine(self, **how: bool) -> Any:
        return ours(self.about, self.stranger, **how)


def pixels(patches: Patches) -> int:
    """Numbers of a patch."""
    return patches.channels * patches.pixels


def pictured(config: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and their patches; pixels left over at two sides belong to none."""
    raw = config["model_type"] == "kimi_k25_vision"
    if (
        raw or "temporal_patch_size" in config or config["model_type"] == "gemma4_vision"
    ):  # patches as they are, of a square of two tiles on a side
        about = load_model("tiny", config)
        count = 16 if raw else (2 * about.config.tiles[0]) ** 2
        return torch.empty(0), torch.randn(BATCH, count, pixels(about.architecture.embed), dtype=torch.float64)
    if "time_stride" in config:  # AST's, of frames by bins: its class's patches are rows of bins
        spectrogram = torch.randn(BATCH, config["max_length"], config["num_mel_bins"], dtype=torch.float64)
        steps = (config["patch_size"], config["frequency_stride"]), (config["patch_size"], config["time_stride"])
        parts = spectrogram.transpose(1, 2).unfold(1, *steps[0]).unfold(2, *steps[1])
        return spectrogram, parts.flatten(3).flatten(1, 2)
    patch, channels = config["patch_size"], config["num_channels"]
    size = config["image_size"] if "image_size" in config else round(config["num_patches"] ** 0.5) * patch
    image = torch.randn(BATCH, channels, size, size, dtype=torch.float64)
    side = size // patch
    whole = image[:, :, : side * patch, : side * patch].unflatten(3, (side, patch)).unflatten(2, (side, patch))
    return image, whole.permute(0, 2, 4, 1, 3, 5).reshape(BATCH, side**2, -1)


def result(output: Any, about: LoadedModel) -> torch.Tensor:
    """Logits, or the output of a base model: its pooler's vector, or the residual stream."""
    pooled = about.architecture.pooler is not None and getattr(about.architecture.pooler, "reads", "") != "each"
    names = ("logits", *(("image_embeds", "text_embeds", "pooler_output") if pooled else ()), "last_hidden_state")
    return next(output[name] for name in names if name in output and output[name] is not None)


@pytest.fixture(params=LOGITS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from in_its_dtype(varied(request.param))


@pytest.fixture(params=by_kind(LOGITS, lambda name: kind_of(MADE[name])))
def kind_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """For tests of the reference model alone: every kind of layer; the others are slow."""
    yield from in_its_dtype(LOGITS[request.param])


def in_its_dtype(config: dict) -> Iterator[Pair]:
    """XGLM's class masks by the lowest number of the residual stream's dtype, in the default dtype."""
    torch.set_default_dtype(torch.float64 if config["model_type"] == "xglm" else torch.float32)
    try:
        yield Pair(config)
    finally:
        torch.set_default_dtype(torch.float32)


def test_logits_are_those_of_the_class(pair: Pair) -> None:
    """Both run in float64, but the class casts to float32: at most seven tensors in a block (norms, queries and keys,
    cosines and sines, softmax, router), each rounded twice, and the deepest model here has six blocks."""
    bound = 6 * 7 * 2 * FLOAT32
    if pair.about.architecture.having(DeltaNet):  # its state is float32, so an error reaches every later token
        bound *= TOKENS
    if pair.about.family == "muse_spark_text":  # three norms in a row
        bound *= 3
    if not pair.decodes:
        bound *= 10 if pair.about.family.startswith("t5gemma") else 2  # as many as six norms in a block
    with torch.no_grad():
        assert gap(pair.mine()(pair.tokens, source=pair.source)[0], pair.logits()) <= bound


def test_in_steps_it_is_the_same(kind_pair: Pair) -> None:
    """Logits of decode steps and chunks with a cache, after the source where there is one; and of fused attention."""
    if not kind_pair.about.has_cache:
        pytest.skip("all tokens are one step")
    mine, fused = kind_pair.mine(), kind_pair.mine(fused=True)
    steps = [(0, 11), (11, 20), *((i, i + 1) for i in range(20, TOKENS))]
    with torch.no_grad():
        whole, *_ = mine(kind_pair.tokens, source=kind_pair.source)
        for model, parts in (mine, steps), (fused, [(0, 9), (9, 28), (28, TOKENS)]):
            past: tuple = ()
            found = []
            for start, end in parts:
                read = kind_pair.source if start == 0 else None
                logits, *past = model(kind_pair.tokens[:, start:end], tuple(past), torch.arange(start, end), read)
                found.append(logits)
                names = (f"blocks.{i}.{state}" for i, block in enumerate(model.blocks) for state in block.states)
                cached = {path: cache.numel() for path, cache in zip(names, past, strict=True)}
                at = {"B": BATCH, "T": end - start, "S": end, "J": kind_pair.seen}
                at["I"] = 0 if read is None else kind_pair.seen
                assert cached == kind_pair.about.ledger.states(at, unfolded=True)
            assert gap(torch.cat(found, dim=1), whole) <= 1e-12


MATMULS = ("x_proj", "k_proj", "o_proj", "out_proj", "kv_proj")


def test_fused_or_with_recomputation_it_is_the_same_and_a_wrong_weight_is_not(kind_pair: Pair) -> None:
    """Logits of fused attention, and gradients of recomputed layers. One changed weight of either side moves the logits
    far more than the bound of the comparison with the class."""
    given, gradients = {"source": kind_pair.source}, []
    for recompute in (False, True):
        mine = kind_pair.mine()
        for side in (mine, *([mine.encoder] if mine.encoder is not None else [])):
            side.recompute = recompute
        whole = mine(kind_pair.tokens, **given)[0]
        whole.sum().backward()
        gradients.append([parameter.grad for parameter in mine.parameters() if parameter.requires_grad])
    both = [(a, b) for a, b in zip(*gradients, strict=True) if a is not None or b is not None]  # LED's run never
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in both)
    with torch.no_grad():
        assert gap(kind_pair.mine(fused=True)(kind_pair.tokens, **given)[0], whole) <= 1e-12
        right = kind_pair.logits()
        sides = [lambda mine: getattr(mine.blocks[0], mine.blocks[0].names[0])]
        if kind_pair.source is not None:
            crossing = [lambda mine: next(block.cross for block in mine.blocks if hasattr(block, "cross"))]
            sides += [] if kind_pair.about.family == "t5gemma2" else crossing  # whose one attention reads both
            sides += [] if kind_pair.made else [lambda mine: mine.encoder.blocks[0].attn]
        for side in sides:
            mine = kind_pair.mine()
            next(getattr(side(mine), name) for name in MATMULS if hasattr(side(mine), name)).weight[0, 0] += 0.5
            assert gap(mine(kind_pair.tokens, **given)[0], right) > 1e-5


def test_a_decoder_with_no_source_says_so() -> None:
    pair = Pair(TINY["t5"])
    with pytest.raises(ValueError, match="needs a source"):
        pair.mine()(pair.tokens)
