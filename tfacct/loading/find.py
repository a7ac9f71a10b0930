"""Find the MODEL that a user names: a preset, a path to a config.json or a preset's TOML, a hub id or the address of
its page, or `-` for stdin. If the hub does not answer, a preset is used for its hub id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfacct.architecture.parts import Stem
from tfacct.base import units
from tfacct.base.errors import ConfigError, NotFoundError, TfacctError, cut, listed, nearest
from tfacct.base.spelling import option, setting, spelled
from tfacct.loading import files, presets, published
from tfacct.loading.model import LoadedModel, load_model
from tfacct.loading.model_description import Provenance

if TYPE_CHECKING:
    from tfacct.loading.hub import Waiting
    from tfacct.loading.spellings import Preset


LEAST_SIZE = 10**8
"""The least number that is a number of parameters rather than of tokens."""


def find(
    model: str,
    sets: Mapping[str, Any] | None = None,
    also: Iterable[str] = (),
    *,
    ask_hub: bool = True,
    waiting: Waiting | None = None,
) -> LoadedModel:
    """Return the model that `model` names. Raises TfacctError with a hint, which may suggest a name in `also`.

    `waiting` is called with a message if the hub is slow.
    """
    if model == "-":
        return load_model("stdin", files.parse_json("standard input", files.read_stdin()), sets)
    if model in presets.names():
        return presets.load(model, sets)
    if not model.strip():
        raise NotFoundError(
            "the MODEL is empty", "`tfacct models` lists the presets; a path to a config.json works too"
        )
    path = Path(model)
    if exists(path):
        file = path / "config.json" if path.is_dir() else path
        found = presets.load_file(file, sets) if file.suffix == ".toml" else _from_file(file, sets)
        return replace(found, path=model)
    from tfacct.loading import spellings  # not needed for presets

    page = spellings.hub_id(model) if ask_hub else None
    if page is None and path.suffix in (".json", ".toml"):
        raise NotFoundError(f"no file {model!r} here", _closest(path.stem))
    if ask_hub and looks_like_hub_id(page or model):
        return _from_hub(page or model, sets, waiting)
    if ask_hub and (preset := spellings.preset(page or model)):
        return _answer(preset, page or model, sets)
    if units.is_tokens(model):
        size = (units.read_number(model) or 0) >= LEAST_SIZE
        other = f"`tfacct budget {model} --tokens N` takes a size" if size else f"{option('ctx', model)} sets a context"
        raise NotFoundError(f"{model} is a number, not a MODEL", f"{other}; `tfacct models` lists the presets")
    raise NotFoundError(f"no preset or file named {model!r}", _suggestion(model, also))


def _from_file(file: Path, sets: Mapping[str, Any] | None) -> LoadedModel:
    if file.name.endswith((".gguf", ".safetensors", ".safetensors.index.json")):
        check = spelled(f"`tfacct check {file}` lists", f"checkpoint({str(file)!r}) lists")
        raise ConfigError(f"{file} has weights, not a config", f"give the config.json; {check} the tensors")
    if file.name == "config.json" and (error := adapter_alone(file.parent)) is not None:
        raise error
    fields = files.parse_json(str(file), files.read(file))
    if file.name != "config.json":
        return load_model(_short_name(file), fields, sets)
    return in_folder(_short_name(file), fields, file.parent, sets)


def adapter_alone(folder: Path) -> ConfigError | None:
    """Error for a folder that PEFT wrote, with an adapter and no model; None for any other folder."""
    file = folder / "adapter_config.json"
    if exists(folder / "config.json") or not exists(file):
        return None
    base = files.parse_json(str(file), files.read(file)).get("base_model_name_or_path")
    named = f": {cut(base)}" if isinstance(base, str) and base else ""
    return ConfigError(f"{folder} has an adapter, not a model", f"give its base model{named}")


def in_folder(name: str, fields: dict[str, Any], folder: Path, sets: Mapping[str, Any] | None = None) -> LoadedModel:
    """Model of the config in a folder, with the format from files next to it. Raises ConfigError."""
    of_format = folder / published.HF_QUANT
    if published.quantized(fields) or not of_format.is_file():
        return replace(load_model(name, fields, sets), folder=folder)
    model = load_model(name, published.with_quantization(fields, of_format), sets)
    return replace(model, folder=folder, format_file=of_format.name)


_SIZE = re.compile(r"(?<=-)\d+(?:\.\d+)?[bm](?=-|$)")
"""Pattern for a size in a model's name: 70b."""


def _closest(model: str, also: Iterable[str] = ()) -> str | None:
    """Suggestion of a preset. For a name of quantized weights, a suggestion of `--dtype` instead."""
    from tfacct.loading import spellings

    if spellings.names_format(model):
        preset, dtype = spellings.without_format(model)
        if preset is not None and dtype:
            return f"offline, the preset: `{preset.name} {option('dtype', dtype)}`"
        return f"a preset supports another format with {option('dtype')}{'' if preset is None else f': {preset.name}'}"
    name = model.rsplit("/", 1)[-1]
    alike = [one for one in (*presets.names(), *also) if one.startswith(name[:1].casefold())]
    if size := _SIZE.search(name.casefold()):  # of that size, if the series has it
        series = name.casefold()[:4]
        same = [one for one in presets.names() if one.startswith(series) and size[0] in one.split("-")]
        return nearest(name, same or alike)
    return nearest(name, alike)


def _suggestion(model: str, also: Iterable[str]) -> str:
    close = _closest(model, also)
    if model.count("/") > 1:  # a path or an address
        address = "a hub id has the form OWNER/NAME"
        return address if close is None else f"{close}{'' if close.endswith('?') else ';'} {address}"
    if model.endswith(".py"):
        return spelled(f"`tfacct check {model}:FACTORY --config MODEL`", "check(MODULE, config=…)") + " checks a module"
    if re.match("gpt-?3", model.casefold()):
        sizes = {"n_layer": 96, "n_embd": 12288, "n_head": 96, "n_positions": 2048}  # arXiv 2005.14165, table 2.1
        changed = " ".join(setting(name, size) for name, size in sizes.items())
        return f"its config is not published; 175B by the sizes of its paper: gpt2-xl {changed}"
    if model == "moe":
        return "`tfacct models moe` lists the presets with experts"
    if (encoder := f"{model}-vision") in presets.names() and f"{model}-text" not in presets.names():
        return f"{encoder} is its encoder of images; its hub id or config.json counts all of it"
    return close or "`tfacct models` lists the presets; a path to a config.json works too"


def looks_like_hub_id(model: str) -> bool:
    """True for OWNER/NAME or OWNER/NAME@REVISION, well-formed or not, unless it is written as a path."""
    return model.partition("@")[0].count("/") == 1 and not model.startswith((".", "/", "~"))


def _from_hub(model: str, sets: Mapping[str, Any] | None, waiting: Waiting | None) -> LoadedModel:
    """Model by hub id, or its preset if the hub cannot be reached or denies access.

    Errors also suggest a preset.
    """
    from tfacct.loading import hub, spellings

    hub_id, revision = hub.read_id(model)
    try:
        copy = hub.fetch(hub_id, revision, largest=files.LARGEST, waiting=waiting or hub.unwatched)
    except TfacctError as error:
        preset = spellings.preset(hub_id) if revision in (None, spellings.MAIN) else None
        alone = _encoder_only_hint(preset) if preset is not None else None
        if preset is not None and alone is None and not isinstance(error, ConfigError):
            why = f" {error.message} ".replace(f" {hub_id} ", " it ").strip()
            return _answer(preset, hub_id, sets, f" ({why})")
        close = alone or _closest(hub_id)
        if close and close.endswith("?"):
            close = f"{close} Fields of a preset can differ, such as the context"
        error.hint = "; ".join(hint for hint in (error.hint, close) if hint) or None
        raise
    name = hub.name_of(hub_id, revision)
    try:
        fields = files.parse_json(f"config.json of {name}", files.read(copy.path))
    except ConfigError as error:
        error.hint = f"the hub cache has it as {copy.path}"
        raise
    source = Provenance(url=copy.page, kind="fetched" if copy.newest else "cached", revision=copy.commit)
    found, folder = load_model(name, fields, sets, source), copy.path.parent
    if published.quantized(fields):
        return replace(found, folder=folder)
    try:
        file = hub.fetch_file(hub_id, copy, published.HF_QUANT, largest=files.LARGEST)
    except ConfigError:
        raise
    except TfacctError:  # only the config is known
        return replace(found, folder=folder, format_assumed=True)
    if file is None:
        return replace(found, folder=folder)
    found = load_model(name, published.with_quantization(fields, file), sets, source)
    return replace(found, folder=folder, format_file=file.name)


def _answer(preset: Preset, typed: str, sets: Mapping[str, Any] | None, why: str = "") -> LoadedModel:
    """The preset for another name, with a note. Raises NotFoundError if the preset is only the encoder of the named
    model."""
    if typed.strip().casefold() == preset.name.casefold():
        return presets.load(preset.name, sets)
    if alone := _encoder_only_hint(preset):
        raise NotFoundError(f"there is no preset for the language model of {typed.strip()}", alone)
    found = presets.load(preset.name, sets)
    sizes = "" if preset.itself else ", which has the same sizes"
    model = replace(found, format_assumed=not preset.itself, left_out=preset.without)
    stored = _format_assumed(model) if "/" in typed else ""
    newest = f", the newest of {listed(preset.versions)}" if preset.versions else ""
    return replace(model, answers=f"using preset {preset.name} for {typed.strip()}{newest}{sizes}{why}{stored}")


def _format_assumed(model: LoadedModel) -> str:
    """Note on the assumed format of the weights; empty if it is known."""
    try:
        if not model.format_assumed and (model.quantized or published.published(model) is not None):
            return ""
        return f"; weights are assumed to be in {model.storage().name}"
    except TfacctError:
        return ""


def _encoder_only_hint(preset: Preset) -> str | None:
    """Hint for a preset that is only the encoder of a language model; None for others.

    CLIP and SigLIP have no language model, so their encoders are what users ask for.
    """
    left_out = "text_config" in preset.without
    if not left_out or (found := presets.load(preset.name)).family.startswith(("clip_", "siglip")):
        return None
    return f"{preset.name} is its encoder of {'audio' if isinstance(found.architecture.embed, Stem) else 'images'}"


def exists(path: Path) -> bool:
    """True if the path exists."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a null byte in it
        return False


def _short_name(file: Path) -> str:
    """Name of a model in a file: the folder's name for a `config.json`."""
    return file.resolve().parent.name if file.name == "config.json" else file.name
