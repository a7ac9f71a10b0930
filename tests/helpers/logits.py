"""The reference model and the class with the same weights, and how far their logits are apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from tests.families import FACTS, LOGITS, family_of
from tests.families._configs import Fields
from tests.helpers.lazy import lazy
from tfacct import families
from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, DeltaNet, LatentAttention, LightningAttention
from tfacct.base.errors import TfacctError
from tfacct.ledger import paths
from tfacct.loading.model import LoadedModel, load_model

torch, transformers, model = lazy("torch"), lazy("transformers"), lazy("tfacct.reference.model")
initialization = lazy("transformers.initialization")
hf, hf_inside = lazy("tfacct.reference.hf"), lazy("tfacct.reference.hf_inside")
MADE = {name: load_model(name, config) for name, config in LOGITS.items()}
BATCH, TOKENS = 3, 29
ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
AS_IN_THE_CONFIG: Mapping[tuple[str, str], str] = {
    ("apertus", "rope_theta"): "alone, it replaces the class's scaling too",
    ("falcon", "alibi"): "the class rounds it to bf16",
    ("hy_v4", "rms_norm_eps"): "the norm of the class's indexer has it too, and it would select other tokens",
    ("jetmoe", "rms_norm_eps"): "only the class's last norm has it",
    ("lfm3", "rms_norm_eps"): "only the norms of queries and keys have it",
    ("muse_spark_text", "rope_theta"): "alone, it is not that of the class's layers",
    ("stablelm", "qk_layernorm"): "on, the class has a norm for each head",
}
"""Fields that `varied` leaves as they are: no count depends on what the class makes of them."""


def varied(name: str) -> Fields:
    """A config with another value for each activation, epsilon and factor that it leaves to the default, and if it is
    not the family's first, for each switch, as far as this program supports it: so a part that is not given its field
    differs from the class's."""
    config, first = LOGITS[name], next(one for one in LOGITS.data if family_of(one) == family_of(name))
    own = load_model("tiny", config)
    theirs = transformers.AutoConfig.for_model(**own.of_class)
    read = {"rope_theta", *vars(theirs), *theirs.attribute_map}
    in_files = {name: alias for alias, name in own.config.attribute_map.items() if alias in read}
    for field in type(own.config).model_fields:
        key, other = in_files.get(field, field), another(getattr(own.config, field))
        as_it_is = (own.family, key) in AS_IN_THE_CONFIG or (name == first and isinstance(other, bool))
        if other is None or as_it_is or key not in read or {key, field} & {*config}:
            continue
        with suppress(TfacctError):
            if load_model("tiny", {**config, key: other}).config.hf_unsupported() is None:
                config = {**config, key: other}
    return config


def another(value: object) -> object:
    """Another value of a switch, a number or an activation; None of others, which the configs vary themselves."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return 0.07 if value < 0.01 else 0.75 * value
    return ("relu" if value != "relu" else "silu") if value in ACTIVATIONS else None


def theirs(config: dict):
    """The transformers model with random weights in float64."""
    given = load_model("tiny", config).of_class
    made = transformers.AutoConfig.for_model(**{key: one for key, one in given.items() if key != "latent_attention"})
    torch.manual_seed(5)
    plain = {"attn_implementation": "eager", **({"experts_implementation": "eager"} if "experts" in str(made) else {})}
    auto = families.read(config).config.task_head.auto
    alone = "." in auto or auto.startswith("Auto")
    whole = None if alone else hf_inside.composite_config(getattr(transformers, auto), made)
    with initialization.no_init_weights():  # every number is drawn below
        built = hf.maker(auto)(made if whole is None else whole, **plain)
    built.tie_weights()
    built = (built if whole is None else hf_inside.language_model_of(built)).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():  # larger than its own initialisation, so that biases and norms matter
            parameter.normal_(std=0.3)
        for name, buffer in built.named_buffers():
            if name.endswith("tid2eid"):  # DeepSeek-V4's table of experts: each token goes to all
                buffer.copy_(torch.arange(buffer.shape[1]).expand_as(buffer))
            if name.endswith("embed_scale") and config["model_type"] == "plamo3":  # its own code scales no row
                buffer.fill_(1)
        for module in built.modules():
            if hasattr(module, "create_weight"):  # RoFormer's class has sines and cosines as parameters
                rows, size = module.weight.shape
                turns = torch.arange(rows)[:, None] / 10_000 ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
                module.weight.copy_(torch.cat((turns.sin(), turns.cos()), dim=1))
                assert gap(module.create_weight(), module.weight) < 1e-6
    return built


def ours(about: LoadedModel, stranger, *, fused: bool = False) -> model.Decoder:
    """The reference model with the stranger's weights, copied through the family's path table."""
    table, tensors, blocks = about.config.hf_module_paths(), about.config.hf_tensor_names(), about.architecture.blocks()
    built = model.build(about.architecture, device="cpu", dtype=torch.float64, fused=fused)
    taken: dict[str, int] = {}
    with torch.no_grad():
        for path, parameter in built.named_parameters():
            number = "".join(re.findall(r"blocks\.(\d+)\.", path))
            *words, tensor = path.split(".")
            found = paths.looked_up(tensors, path)
            if found is not None and (parameter.dim() < 3 or ".experts." not in path):
                # a convolution's matrix has an axis of 1 there
                source = stranger.get_parameter(found)
                if re.sub(r"\.\d+\.", ".*.", path).removesuffix(".weight") in about.config.transposed_weights:
                    source = source.flatten(1).T  # XLNet's class stores matrices by inputs, then heads
                if source.numel() > parameter.numel():  # q, k and v of a pooler
                    start = taken.get(found, 0)
                    taken[found] = start + len(parameter)
                    source = source[start : start + len(parameter)]
                parameter.copy_(source.reshape(parameter.shape))
                continue
            if found is not None:  # the experts of a layer
                source = stranger.get_parameter(found)
                if source.dim() == 2:  # DBRX's, the rows of all experts in one matrix, which are the last one's inputs
                    each = source.unflatten(0, (len(parameter), -1))
                    parameter.copy_(each if words[-1] == "down_proj" else each.transpose(1, 2))
                    continue
                source = source if about.config.transposed_weights else source.transpose(1, 2)
                half = source.shape[2] // 2
                parameter.copy_({"gate_proj": source[..., :half], "up_proj": source[..., half:]}.get(words[-1], source))
                continue
            named = paths.looked_up(table, ".".join(words))
            assert named is not None
            source = getattr(stranger.get_submodule(named), tensor)
            if words[-1] == "join" and source.dim() > 2:  # patch by patch, not channel by channel
                source = source.flatten(2).transpose(1, 2)
            if source.dim() > 2:  # a convolution's kernels
                source = source.flatten(1)
            if type(stranger.get_submodule(named)).__name__ == "Conv1D" and tensor == "weight":
                source = source.T  # GPT-2's class stores its matrices transposed
            fused = by_head(about, blocks[int(number)]) if number and not path.startswith("encoder.") else {}
            if words[-1] in fused and words[-2] in ("attn", "delta", "lightning"):  # not the MLP's of that name
                parameter.copy_(fused[words[-1]](source).reshape(parameter.shape))
                continue
            key = f"{named}.{tensor}"
            start = taken.get(key, 0)  # q, k and v are slices of one tensor there
            taken[key] = start + parameter.shape[0]
            parameter.copy_(source[start : start + parameter.shape[0]])
    return built


def by_head(about: LoadedModel, block: Block) -> dict:
    """How to take a projection out of a matrix that holds several head by head: q, k and v of each head together, the
    query heads of a key head before it, or each head's key next to its value."""
    attn, delta = block.attention, block.find(DeltaNet)
    if (lightning := block.find(LightningAttention)) is not None:
        own = (lightning.heads, 3, lightning.head_dim)
        return {f"{name}_proj": lambda all_, at=at: all_.unflatten(0, own)[:, at] for at, name in enumerate("qkv")}
    if delta is not None and FACTS[about.family].BY_KEY_HEAD:
        return by_key_head(delta)
    if attn is None:
        return {}
    if isinstance(attn, Attention) and attn.gate and attn.gate.bias:  # without, it is a layer of its own
        heads = (attn.heads, 2, attn.head_dim)
        return {
            "q_proj": lambda both: both.unflatten(0, heads)[:, 0],
            "gate_proj": lambda both: both.unflatten(0, heads)[:, 1],
        }
    if isinstance(attn, LatentAttention):
        heads = (attn.heads, attn.nope_dim + attn.value_dim)
        queries = (attn.heads, attn.query + attn.value_dim)  # each next to its gate, made of a pair
        pair = {
            "q_b_proj": lambda both: both.unflatten(0, queries)[:, : attn.query],
            "gate_proj": lambda both: both.unflatten(0, queries)[:, attn.query :],
        }
        return {
            **(pair if attn.paired else {}),
            "k_b_proj": lambda both: both.unflatten(0, heads)[:, : attn.nope_dim],
            "v_b_proj": lambda both: both.unflatten(0, heads)[:, attn.nope_dim :],
        }
    if not FACTS[about.family].BY_HEAD or attn.kv_heads == 1:
        return {}
    heads = (attn.kv_heads, attn.group + 2, attn.head_dim)
    return {
        "q_proj": lambda both: both.unflatten(0, heads)[:, :-2],
        "k_proj": lambda both: both.unflatten(0, heads)[:, -2],
        "v_proj": lambda both: both.unflatten(0, heads)[:, -1],
    }


def by_key_head(part: DeltaNet) -> dict:
    """How to take a projection out of two matrices that hold DeltaNet's, each key head's together."""
    wide, first = part.group * part.value_dim, part.key_dim
    sizes = {"q_proj": (0, first), "k_proj": (first, first), "v_proj": (2 * first, wide)}
    sizes |= {"gate_proj": (2 * first + wide, wide)}
    few = {"rate_proj": (0, part.group), "decay_proj": (part.group, part.group)}
    return {
        name: lambda all_, at=at: all_.unflatten(0, (part.key_heads, -1)).narrow(1, *at)
        for name, at in {**sizes, **few}.items()
    }


def gap(mine, other) -> float:
    """The largest difference, relative to the largest logit."""
    return float((mine - other).abs().max() / other.abs().max())
