"""Checks of custom models: missing parts, parts given twice or without effect, and contradictions."""

from collections.abc import Iterator, Mapping

from tfacct.base.errors import ConfigError
from tfacct.families import custom_tables as tables
from tfacct.families.custom_layers import Layers, Places, deciding, kind_named, merged


def _refuse(when: bool, message: str, hint: str | None = None) -> None:
    """Raises ConfigError if the condition is true."""
    if when:
        raise ConfigError(message, hint)


def check_tables(given: tables.Tables) -> None:
    """Raises ConfigError for a file without the tables that every model has."""
    _refuse("model" not in given, "[model] is missing", "it has vocab, hidden, context and positions")
    _refuse("norm" not in given, "[norm] is missing", 'for example kind = "rms"')
    nothing = not any(side in given for side in tables.SIDES)
    _refuse(nothing, "[encoder] and [decoder] are both missing", "[decoder] with layers = 6")
    alone = "cross_attention" in given.get("decoder", {}) and "encoder" not in given
    _refuse(alone, "[decoder.cross_attention] needs an [encoder] to attend to")


def check_parts(given: tables.Tables, layers: Mapping[str, Layers]) -> None:
    """Raises ConfigError for a layer in which a part is missing or given twice, and for a table that no layer uses. A
    missing number of layers is reported when the number is checked."""
    if not all(found.each for found in layers.values()):
        return
    kinds = [(side, places) for side, found in layers.items() for places in found.kinds]
    for side, places in kinds:
        _check_layer(side, places)
    used = {
        place.named(part) for _, places in kinds for part in merged(places) for place in places if part in place.parts
    }
    for name in tables.COMMON:
        _refuse(name in given and name not in used, f"nothing uses [{name}]", "leave it out")
    for side in layers:
        for path in _tables_of(given[side], side):
            _refuse(path not in used, f"no layer of the {given[side]['layers']:,} uses [{path}]", "leave it out")


def _check_layer(side: str, places: Places) -> None:
    parts, kind = merged(places), kind_named(places).strip("[]") or side
    alone = next((tables.LABELS[name] for name in parts if name in tables.WITHOUT_MLP and len(parts) == 1), None)
    for group, described in ((tables.MIXERS, "attention"), (tables.MLPS, "MLP")):
        decided = deciding(places, group)
        if group is tables.MLPS and alone is not None:
            _refuse(
                decided is not None and "." in decided[0].path,
                f"[{decided[0].named(decided[1][0]) if decided else ''}] has no effect: layers of {alone} have no MLP",
                f"add one with mlp = true in the table of {alone}",
            )
        elif decided is None and group is tables.MIXERS:
            raise ConfigError(f"[attention] is missing, and [{kind}.attention] too", "for example heads = 8")
        elif decided is None:
            raise ConfigError(f"[feed_forward] and [experts] are missing, and [{kind}] has neither")
        else:
            both = " and ".join(f"[{decided[0].named(name)}]" for name in decided[1])
            named = " or ".join(f"[{kind}.{name}]" for name in decided[1])
            message = f"{both} both describe the {described} of [{kind}]"
            _refuse(len(decided[1]) > 1, message, f"remove one, or name the one to use: {named}")


def _tables_of(side_tables: tables.Tables, side: str) -> Iterator[str]:
    """Tables of parts in a side, and empty tables."""
    for name, table in side_tables.items():
        if name in tables.COMMON:
            yield f"{side}.{name}"
        elif name in tables.PLACES:
            for number, parts in table.items():
                yield from (f"{side}.{name}.{number}.{part}" for part in parts)
            yield from (f"{side}.{name}.{number}" for number, parts in table.items() if not parts)
            if not table:
                yield f"{side}.{name}"
        elif name not in tables.OF_A_SIDE:
            yield from (f"{side}.{name}.{part}" for part in table)


def check_together(model: tables.ModelTable, norm: tables.NormTable, sides: Mapping[str, tables.SideTable]) -> None:
    """Raises ConfigError for contradictions."""
    both = len(sides) == 2
    blocks = [block for side in sides.values() for block in side.blocks]
    for key in ("source_vocab", "source_context", "source_hidden"):
        given = getattr(model, key) is not None and not both
        _refuse(given, f"model.{key} needs an [encoder] and a [decoder]")
    if "encoder" in sides:
        _check_encoder(model, sides["encoder"], both=both)
    _refuse(
        model.source_hidden not in (None, model.hidden)
        and any(block.attention is not None and block.attention.head_dim is None for block in blocks),
        "model.source_hidden needs attention.head_dim, because the two widths give different head sizes",
        "write attention.head_dim, or one per side",
    )
    parallel = both and norm.order == "parallel"
    _refuse(parallel, 'norm.order = "parallel" with cross attention is not supported', 'write "pre" or "post"')
    shared = norm.shared and norm.order in ("sandwich", "reordered")
    _refuse(shared, f'norm.shared with norm.order = "{norm.order}" is not supported', "leave norm.shared out")
    if "decoder" in sides:
        _check_listed(sides["decoder"])
        _check_decoder_only(norm, sides["decoder"], both=both)
    latent = "latent_attention" not in model.model_fields_set or any(block.latent_attention for block in blocks)
    _refuse(not latent, "model.latent_attention has no effect without [latent_attention]", "leave it out")
    for block in blocks:
        _check_block(model, block)
    for name, side in sides.items():
        heads = {(block.attention.heads, block.attention.kv_heads) for block in side.blocks if block.attention}
        _refuse(
            model.positions == "relative" and len(heads) > 1,
            f'model.positions = "relative" needs the same number of heads in all layers of [{name}], which share one'
            " bias",
            "write attention.heads once",
        )


def _check_encoder(model: tables.ModelTable, encoder: tables.SideTable, *, both: bool) -> None:
    for block in encoder.blocks:
        latent = block.latent_attention is not None
        _refuse(
            latent,
            "[latent_attention] does not work with an [encoder], because it is causal",
            "add [encoder.attention]",
        )
        window = block.attention is not None and block.attention.window is not None
        hint = "write it in [decoder.attention]" if both else "leave it out"
        _refuse(window, "attention.window does not work with an [encoder], whose tokens see all others", hint)
    alibi = model.positions == "alibi"
    _refuse(alibi, 'model.positions = "alibi" with an [encoder] is not supported, because ALiBi is causal here')


def _check_block(model: tables.ModelTable, block: tables.LayerTable) -> None:
    attention, positions = block.attention, f'model.positions = "{model.positions}"'
    if attention is not None:
        window = attention.window is not None and model.positions == "relative"
        _refuse(window, 'attention.window with model.positions = "relative" is not supported')
        rotated, hint = attention.rotary_dim is not None, "leave it out"
        sentence = "attention.rotary_dim with attention.rotated = false has no effect"
        _refuse(rotated and not attention.rotated, sentence, "leave one out")
        other = model.positions != "rotary"
        _refuse(rotated and other, f"attention.rotary_dim with {positions} has no effect", hint)
        _refuse(not attention.rotated and other, f"attention.rotated = false with {positions} has no effect", hint)
    latent = block.latent_attention is not None and model.positions not in ("rotary", "none")
    _refuse(latent, f"[latent_attention] with {positions} is not supported", 'write "rotary" or "none"')
    gated = block.experts is not None and block.experts.shared_gate and block.experts.shared is None
    _refuse(gated, "experts.shared_gate needs experts.shared")


def _check_listed(side: tables.SideTable) -> None:
    """Raises ConfigError for layer indices that do not exist or are listed twice."""
    listing: dict[int, str] = {}
    for name in tables.LISTED:
        table, key = getattr(side, name), f"decoder.{name}.layers"
        for number in table.layers if table is not None else ():
            last = f"the last of {side.layers:,} is {side.layers - 1:,}"
            _refuse(number >= side.layers, f"{key} has layer {number:,}: {last}")
            _refuse(listing.get(number) == key, f"{key} lists a layer twice")
            _refuse(number in listing, f"{listing.get(number)} and {key} both list layer {number:,}")
            listing[number] = key


def _check_decoder_only(norm: tables.NormTable, decoder: tables.SideTable, *, both: bool) -> None:
    """Raises ConfigError for unsupported combinations with mixers in place of attention."""
    mixers = [
        next((name for name in tables.LISTED if getattr(block, name) is not None), None) for block in decoder.blocks
    ]
    found = [name for name in dict.fromkeys(mixers) if name is not None]
    if None not in mixers:
        listing = (f"decoder.{name}.layers" for name in found if getattr(decoder, name) is not None)
        place = next(listing, "decoder.pattern" if decoder.pattern else "")
        alone = tables.LABELS[found[0]] if len(found) == 1 and found[0] in tables.WITHOUT_MLP else ""
        raise ConfigError(
            f"{place} leaves no layer with attention" if place else "no layer has attention",
            f"for a model of {alone} only, use a config.json of its family"
            if alone
            else "give some of its layers attention",
        )
    latent = both and any(block.latent_attention is not None for block in decoder.blocks)
    _refuse(latent, "[latent_attention] with an [encoder] is not supported", "give the decoder [attention]")
    message = "[mamba] and [mamba2] in one model are not supported, because their states share a name"
    _refuse({*tables.WITHOUT_MLP} <= {*found}, message, "write one of them")
    for name in found:
        _refuse(
            both, f"[decoder.{name}] with an [encoder] is not supported, because its layers would not read the source"
        )
        _refuse(norm.shared, f"[decoder.{name}] with norm.shared is not supported", "leave norm.shared out")
        parallel = f'[decoder.{name}] with norm.order = "parallel" is not supported'
        _refuse(norm.order == "parallel", parallel, 'write "pre" or "post"')
