"""docs/models.md, from the families and presets themselves."""

from __future__ import annotations

import sys
import textwrap
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from tfacct import families
from tfacct.architecture.transformer import Transformer
from tfacct.families import FamilyConfig
from tfacct.families._fields import CHANGES_COUNTS, HARMLESS, OF_OTHER_LAYERS, RATES, SPELLINGS
from tfacct.families._spelled_types import SPELLED
from tfacct.families._texts import TEXTS
from tfacct.families._wrappers import WRAPPERS
from tfacct.families.registry import newest_first, released
from tfacct.ledger.workload import Workload
from tfacct.loading import presets
from tfacct.loading.model import LoadedModel
from tfacct.training import bounds

MODELS = """\
# Models

Printed by the program: `python docs/build.py`. One section for each `model_type`, the newest first: by the month in
which its first model, or the paper about it, came out.

A config's field is *read*, *harmless*, *refused* or *unknown* ([conventions.md](conventions.md)). The tables list the
fields that are read and counted, the meaning of an absent field (the default of the transformers class) and of a null
one; where a cell is empty, null is refused. *Refused here* lists the fields that another family understands and this
one does not, once switched on. Fields that no family understands are [at the end](#refused-everywhere), and so are
those that are harmless everywhere.

Totals are parameters, each stored tensor once. *Active* are those that one token uses, embeddings included: everything
stored, but of the experts only those that the token is sent to. `tfacct verify MODEL --against transformers` compares
with the class that a section names, module by module.

*training*: the groups of recipes that `tfacct train` answers for the family, and the largest error bound of its peak
among them ([training.md](training.md#how-far-off)). For the others `--exact` runs the transformers class.
"""


OTHER_NAMES = (
    "Types of older files, and of files with code of their own, that are read as a family here. Their fields and"
    " defaults were read in that code or in public copies of it; it was not run, and the witness is the family's class,"
    " given the same sizes. Fields that their code does otherwise are refused."
)


def models_page() -> str:
    """docs/models.md: what is known of every family."""
    known: dict[str, list[LoadedModel]] = {name: [] for name in newest_first(families.names())}
    for model in presets.load_all():
        known[model.family].append(model)
    rows = [
        f"| [{name}](#{name}) | {released(name) or '–'} | {_differs(name)} | {len(known[name])} | {_trains(name)} |"
        for name in known
    ]
    table = "\n".join(["| family | since | what it is | presets | training |", "|---|---|---|---:|---|", *rows])
    read = {name for family in known for name in _understood(families.config_class(family))}
    refused = f"{_words(CHANGES_COUNTS - read - HARMLESS)}, and all that begin with {_words(OF_OTHER_LAYERS)}."
    harmless = f"{_words(HARMLESS)}, and all with {_words(RATES)} in their names."
    twice = (
        "Converted files keep the old name of a size next to the one the class reads. Both are accepted if they are"
        f" equal, and refused if not. Names of one size: {'; '.join(map(_words, SPELLINGS))}."
    )
    spelled = ", ".join(f"`{name}` as `{one.family}`" for name, one in SPELLED.items())
    end = "\n\n".join(
        [
            f"## Other names\n\n{_wrapped(f'{OTHER_NAMES} {spelled}.')}",
            "## Refused everywhere\n\nNo family understands these when they are switched on.",
            _folded("The fields", _wrapped(refused)),
            "## Harmless everywhere\n\nUnless a family reads them.",
            _folded("The fields", _wrapped(harmless)),
            f"## Sizes given twice\n\n{_wrapped(twice)}\n",
        ]
    )
    return "\n".join([MODELS, table, "", *(_section(name, known[name], read) for name in known), end])


def _trains(name: str) -> str:
    """Groups of recipes that the formula of a training step answers, and the largest error bound among them."""
    row, groups = bounds.row_of(name), bounds.answered_groups(name)
    return f"{', '.join(groups)}: {max(row[group].percent for group in groups):g} %" if groups else "–"


def _section(name: str, models: list[LoadedModel], read: set[str]) -> str:
    family = families.config_class(name)
    if name == families.OWN:
        return _own_section(models)
    harmless = family.harmless - set(family.model_fields)
    silent = (f"`{field}` ({_absent(family, field)})" for field in sorted(family.uncounted))
    facts = {
        "Also read in": ", ".join(
            f"`text_config` of a `{whole}`, the other models in it are not counted"
            for whole, wrapper in WRAPPERS.items()
            if (TEXTS[wrapper.text].family if wrapper.text in TEXTS else wrapper.text) == name
        ),
        "Other names": ", ".join(f"`{other}` for `{field}`" for other, field in family.aliases.items()),
        "Read for the reference model, for a check, or behind a switch (absent)": ", ".join(silent),
        "Harmless here only": _words(harmless - HARMLESS),
        "Cache": _cache(family, models),
        "Checked against": _witnesses(name, models),
    }
    refused = _words((CHANGES_COUNTS & read) - _understood(family) - HARMLESS)
    rows = [
        f"| `{field}` | {_absent(family, field)} | {_null(family, field)} |"
        for field in family.model_fields
        if field not in family.uncounted
    ]
    routed = any(model.ledger.parameters() != model.ledger.active_parameters() for model in models)
    active, rule = (" active |", "---:|") if routed else ("", "")
    fields = "\n".join(["| field | absent | null |", "|---|---|---|", *rows])
    known = "\n\n".join(_wrapped(f"{title}: {text}.") for title, text in facts.items() if text)
    return "\n\n".join(
        [
            f"## {name}\n\n{_differs(name)}",
            _notes(name),
            "\n".join(
                [
                    f"| preset | parameters |{active} blocks | total from |",
                    f"|---|---:|{rule}---|---|",
                    *(_preset(model, routed) for model in models),
                ]
            ),
            _folded("Fields, witnesses", f"{fields}\n\n{known}"),
            _folded("Refused here", _wrapped(refused)) + "\n",
        ]
    )


def _folded(title: str, text: str) -> str:
    """Text that opens on a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _own_section(models: list[LoadedModel]) -> str:
    """The models of parts: their keys have a page of their own."""
    presets_ = [f"| {m.name} | {sum(m.ledger.parameters().values()):,} |" for m in models]
    return "\n\n".join(
        [
            f"## {families.OWN}\n\n{_differs(families.OWN)} [your-model.md](your-model.md) lists its tables and keys.",
            _notes(families.OWN),
            "\n".join(["| preset | parameters |", "|---|---:|", *presets_, ""]),
        ]
    )


def _differs(name: str) -> str:
    """The first sentence of a family's docstring."""
    family = families.config_class(name)
    own = ".lineages." in family.__module__
    doc = (family.__doc__ if own else sys.modules[family.__module__].__doc__) or ""
    return " ".join(doc.partition("\n\n")[0].split())


@cache
def _all_notes() -> dict[str, list[str]]:
    """Notes on each family: docs/models/notes has a file per lineage, in which a heading names the families."""
    found: dict[str, list[str]] = {}
    for path in sorted((Path(__file__).parent / "models" / "notes").glob("*.md")):
        for section in path.read_text().split("\n## ")[1:]:
            names, _, text = section.partition("\n\n")
            for name in names.split(", "):
                found.setdefault(name, []).append(text.strip())
    return found


def _notes(name: str) -> str:
    return "\n".join(_all_notes().get(name, ()))


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 125, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _words(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _understood(family: type[FamilyConfig]) -> set[str]:
    return {*family.model_fields, *family.harmless, *family.aliases}


class _Spelled(str):
    """A field's name that a default is computed from: what comes out is the formula."""

    def __mul__(self, factor: object) -> _Spelled:
        return _Spelled(f"{self} · {factor}")

    def __rmul__(self, factor: object) -> _Spelled:
        return _Spelled(f"{factor} · {self}")

    def __mod__(self, _: object) -> Any:
        return 0  # it divides

    def __floordiv__(self, other: object) -> _Spelled:
        return _Spelled(f"{self} / {other}")


def _absent(family: type[FamilyConfig], name: str) -> str:
    """What an absent field means."""
    field = family.model_fields[name]
    if field.is_required():
        return "**required**"
    if field.default_factory is not None:
        formula: Any = field.default_factory
        return str(formula({other: _Spelled(other) for other in family.model_fields}))
    shown = {None: "none", True: "true", False: "false"}
    if field.default is None or isinstance(field.default, bool):
        return shown[field.default]
    return f"{field.default:,}" if isinstance(field.default, int) else str(field.default)


def _null(family: type[FamilyConfig], name: str) -> str:
    """What a null field means; nothing where it is refused."""
    field = family.model_fields[name]
    if name in family.nulls:
        return str(family.nulls[name])
    if not field.is_required() and (field.default_factory is not None or field.default is None):
        return "as absent"
    return "none" if NoneType in get_args(field.annotation) else ""


def _cache(family: type[FamilyConfig], models: list[LoadedModel]) -> str:
    """Where what the class keeps is not what an engine must keep."""
    at = Workload(context=10**6, tokens=1).axes()
    keeping = [m for m in models if m.keeps]
    other = [m.name for m in keeping if m.config.class_keeps().ledger().states(at) != m.ledger.states(at)]
    return f"the class keeps something else: {family.class_differs} ({', '.join(other)})" if other else ""


def _witnesses(name: str, models: list[LoadedModel]) -> str:
    """Who else says what this family counts."""
    from transformers.models.auto import modeling_auto

    family = families.config_class(name)
    known = family.class_type or name
    autos = dict.fromkeys(ending.auto for ending in family.heads.values()) if family.hf_paths else {}
    makers = {auto: getattr(modeling_auto, auto, None) for auto in autos}  # None: a class of its own
    built = [auto if of is None else of._model_mapping._model_mapping[known] for auto, of in makers.items()]
    found = [f"`{name}`" for name in built]
    totals = [model.provenance.expected_from for model in models if model.provenance]
    for witness, words in (("published", "published totals"), ("arithmetic", "hand arithmetic")):
        found += [f"{words} for {totals.count(witness)} of {len(totals)} presets"] if witness in totals else []
    return ", ".join(["the reference model", *found])


def _preset(model: LoadedModel, routed: bool) -> str:
    total, active = (sum(counts.values()) for counts in (model.ledger.parameters(), model.ledger.active_parameters()))
    source = model.provenance.expected_from if model.provenance else ""
    middle = f" {active:,} |" if routed else ""
    return f"| {model.name} | {total:,} |{middle} {_blocks(model.architecture)} | {source} |"


def _blocks(shape: Transformer) -> str:
    """How many blocks there are of each kind; of how many kinds, where no word tells these apart."""
    stacks, kinds = shape.every_stack, shape.kinds()
    if len(kinds) > 1 and all(kind.isdigit() for kind in kinds):
        return f"{sum(int(stack.count) for stack in stacks):,}, of {len(kinds)} kinds"
    parts = []
    for stack, kind in zip(stacks, kinds, strict=True):
        window = f", window {stack.block.window:,}" if stack.block.window else ""
        parts.append(f"{stack.count:,} {kind or ('decoder' if shape.encoder else '')}".strip() + window)
    return "; ".join(parts)
