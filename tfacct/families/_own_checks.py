"""Refusals of own models: missing parts, parts given twice or for nothing, and what does not go together."""

from collections.abc import Iterator, Mapping

from tfacct.base.errors import ConfigError
from tfacct.families._own_layers import Chain, Layers, deciding, kind_named, merged
from tfacct.families._own_names import Tables
from tfacct.families._own_tables import (
    ALONE,
    CALLED,
    COMMON,
    LISTED,
    MIXERS,
    NETWORKS,
    OF_A_SIDE,
    PLACES,
    SIDES,
    BlockTable,
    ModelTable,
    NormTable,
    SideTable,
)

DESCRIBED = {MIXERS: "attention", NETWORKS: "network"}


def check_tables(given: Tables) -> None:
    """Refuse a file without the tables that every model has."""
    for name, example in (("model", "vocab, hidden, context and positions"), ("norm", 'kind = "rms"')):
        if name not in given:
            raise ConfigError(f"[{name}] is missing", f"it holds {example}")
    if not any(side in given for side in SIDES):
        raise ConfigError("neither [encoder] nor [decoder]: there is nothing to run", "[decoder] with layers = 6")
    if "cross_attention" in given.get("decoder", {}) and "encoder" not in given:
        raise ConfigError("[decoder.cross_attention] without an [encoder]: there is nothing to attend to")


def check_parts(given: Tables, layers: Mapping[str, Layers]) -> None:
    """Refuse a layer in which a part is missing or given twice, and a table that no layer uses. A side whose number of
    layers is none is refused with that number."""
    if not all(own.each for own in layers.values()):
        return
    for side, own in layers.items():
        for chain in own.chains:
            _check_layer(side, chain)
    used = {path for own in layers.values() for chain in own.chains for path in _used(chain)}
    for name in COMMON:
        if name in given and name not in used:
            raise ConfigError(f"no side uses [{name}]", "leave it out")
    for side in layers:
        for path in _tables_of(given[side], side):
            if path not in used:
                raise ConfigError(f"no layer of the {given[side]['layers']:,} uses [{path}]", "leave it out")


def _check_layer(side: str, chain: Chain) -> None:
    parts, own = merged(chain), kind_named(chain).strip("[]") or side
    for group in (MIXERS, NETWORKS):
        decided = deciding(chain, group)
        alone = next((name for name in parts if name in ALONE and len(parts) == 1), None)
        if group is NETWORKS and alone is not None:
            if decided and "." in decided[0].path:
                raise ConfigError(
                    f"[{decided[0].named(decided[1][0])}] for layers of {CALLED[alone]} alone: they have no network",
                    f"network = true in the table of {CALLED[alone]} gives them one",
                )
        elif decided is None and group is MIXERS:
            raise ConfigError(f"[attention] is missing, and [{own}.attention] too", "it holds heads = 8")
        elif decided is None:
            raise ConfigError(f"[feed_forward] and [experts] are missing, and [{own}] has neither")
        elif len(decided[1]) > 1:
            both = " and ".join(f"[{decided[0].named(name)}]" for name in decided[1])
            raise ConfigError(
                f"{both} both describe the {DESCRIBED[group]} of [{own}]",
                f"drop one, or name the one it has: {' or '.join(f'[{own}.{name}]' for name in decided[1])}",
            )


def _used(chain: Chain) -> Iterator[str]:
    """Tables that a layer's parts are read from."""
    for part in merged(chain):
        yield from (place.named(part) for place in chain if part in place.parts)


def _tables_of(own: Tables, side: str) -> Iterator[str]:
    """Tables of parts in a side, and tables in which there are none."""
    for name, table in own.items():
        if name in COMMON:
            yield f"{side}.{name}"
        elif name in PLACES:
            for number, parts in table.items():
                yield from (f"{side}.{name}.{number}.{part}" for part in parts)
            yield from (f"{side}.{name}.{number}" for number, parts in table.items() if not parts)
            if not table:
                yield f"{side}.{name}"
        elif name not in OF_A_SIDE:
            yield from (f"{side}.{name}.{part}" for part in table)


def check_together(model: ModelTable, norm: NormTable, sides: Mapping[str, SideTable]) -> None:
    """Refuse contradictions."""
    both = len(sides) == 2
    for key in ("source_vocab", "source_context", "source_hidden"):
        if getattr(model, key) is not None and not both:
            raise ConfigError(f"model.{key} without an [encoder] and a [decoder]: there is no source")
    if "encoder" in sides:
        _check_encoder(model, sides["encoder"], both=both)
    if model.source_hidden not in (None, model.hidden):
        attending = [block.attention for side in sides.values() for block in side.blocks]
        if any(own is not None and own.head_dim is None for own in attending):
            raise ConfigError(
                "model.source_hidden without attention.head_dim: both widths would give one",
                "write attention.head_dim, or one for each side",
            )
    if both and norm.order == "parallel":
        raise ConfigError('norm.order = "parallel" with cross attention is not understood', 'write "pre" or "post"')
    if norm.shared and norm.order in ("sandwich", "reordered"):
        raise ConfigError(f'norm.shared with norm.order = "{norm.order}" is not understood', "leave norm.shared out")
    if "decoder" in sides:
        _check_listed(sides["decoder"])
        _check_looking_back(norm, sides["decoder"], both=both)
    blocks = [block for side in sides.values() for block in side.blocks]
    if "latent_attention" in model.model_fields_set and all(block.latent_attention is None for block in blocks):
        raise ConfigError("model.latent_attention without [latent_attention]: no block has it", "leave it out")
    for block in blocks:
        _check_block(model, block)
    for name, side in sides.items():
        heads = {(block.attention.heads, block.attention.kv_heads) for block in side.blocks if block.attention}
        if model.positions == "relative" and len(heads) > 1:
            raise ConfigError(
                f'model.positions = "relative" where the layers of [{name}] differ in heads: they share a table',
                "write attention.heads once",
            )


def _check_encoder(model: ModelTable, encoder: SideTable, *, both: bool) -> None:
    for block in encoder.blocks:
        if block.latent_attention is not None:
            raise ConfigError(
                "[latent_attention] with an [encoder]: it only looks back", "give the encoder [encoder.attention]"
            )
        if block.attention is not None and block.attention.window is not None:
            hint = "write it in [decoder.attention]" if both else "leave it out"
            raise ConfigError("attention.window with an [encoder]: its tokens see all others", hint)
    if model.positions == "alibi":
        raise ConfigError('model.positions = "alibi" with an [encoder] is not understood: ALiBi only looks back')


def _check_block(model: ModelTable, block: BlockTable) -> None:
    own = block.attention
    if own is not None and own.window is not None and model.positions == "relative":
        raise ConfigError('attention.window with model.positions = "relative" is not understood')
    if own is not None and own.rotary_dim is not None and not own.rotated:
        raise ConfigError("attention.rotary_dim with attention.rotated = false: nothing is rotated", "leave one out")
    if own is not None and own.rotary_dim is not None and model.positions != "rotary":
        raise ConfigError(
            f'attention.rotary_dim with model.positions = "{model.positions}": nothing is rotated', "leave it out"
        )
    if own is not None and not own.rotated and model.positions != "rotary":
        raise ConfigError(
            f'attention.rotated = false with model.positions = "{model.positions}": nothing is rotated', "leave it out"
        )
    if block.latent_attention is not None and model.positions not in ("rotary", "none"):
        raise ConfigError(
            f'[latent_attention] with model.positions = "{model.positions}" is not understood',
            'write "rotary" or "none"',
        )
    if block.experts is not None and block.experts.shared_gate and block.experts.shared is None:
        raise ConfigError("experts.shared_gate without experts.shared: there is no shared network")


def _check_listed(side: SideTable) -> None:
    """Refuse indices of blocks that do not exist, and blocks that are listed twice."""
    listing: dict[int, str] = {}
    for name in LISTED:
        table, key = getattr(side, name), f"decoder.{name}.layers"
        for number in table.layers if table is not None else ():
            if number >= side.layers:
                raise ConfigError(f"{key} has block {number:,}: the last of {side.layers:,} is {side.layers - 1:,}")
            if listing.get(number) == key:
                raise ConfigError(f"{key} names a block twice")
            if number in listing:
                raise ConfigError(f"{listing[number]} and {key} both name block {number:,}")
            listing[number] = key


def _check_looking_back(norm: NormTable, decoder: SideTable, *, both: bool) -> None:
    """Refuse combinations with other mixers than attention that are not understood."""
    own = [next((name for name in LISTED if getattr(block, name) is not None), None) for block in decoder.blocks]
    found = [name for name in dict.fromkeys(own) if name is not None]
    if None not in own:
        listing = (f"decoder.{name}.layers" for name in found if getattr(decoder, name) is not None)
        told = next(listing, "decoder.pattern" if decoder.pattern else "")
        alone = CALLED[found[0]] if len(found) == 1 and found[0] in ALONE else ""
        raise ConfigError(
            f"{told} leaves no block with attention" if told else "no block has attention",
            f"for {alone} alone, use a config.json of its family" if alone else "give some of its layers attention",
        )
    if both and any(block.latent_attention is not None for block in decoder.blocks):
        raise ConfigError("[latent_attention] with an [encoder] is not understood", "give the decoder [attention]")
    if set(ALONE) <= set(found):
        raise ConfigError(
            "[mamba] and [mamba2] in one model are not understood: their states go by one name", "write one of them"
        )
    for name in found:
        if both:
            raise ConfigError(f"[decoder.{name}] with an [encoder] is not understood: its blocks would read no source")
        if norm.shared:
            raise ConfigError(f"[decoder.{name}] with norm.shared is not understood", "leave norm.shared out")
        if norm.order == "parallel":
            raise ConfigError(
                f'[decoder.{name}] with norm.order = "parallel" is not understood', 'write "pre" or "post"'
            )
