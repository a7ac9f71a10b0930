"""What one rank of a mesh holds and sends, by the rules and by the class that torch divides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tfacct.accounts.sharding.mesh import Mesh
from tfacct.accounts.sharding.sends import Collective
from tfacct.accounts.sharding.shards import shard
from tfacct.base.errors import MissingExtraError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.workload import Workload
from tfacct.loading.model import LoadedModel
from tfacct.witness.checks import Check
from tfacct.witness.renamed import renamed


def rank_checks(
    subject: LoadedModel, work: Workload, mesh: Mesh, sent: Sequence[Collective], dtype: str, *, published: bool
) -> list[Check]:
    """Ask the class about a step of the fullest rank: `sent` are the collectives by the rules, `published` says that
    transformers' own plan divides it, not torch's. Raises UsageError where it cannot be asked."""
    seen = _step(subject, work, mesh, dtype, published=published)
    calls: Counter[str] = Counter()
    for one in sent:
        calls[_call(one.when, one.kind, one.bytes // one.calls)] += one.calls
    theirs = Counter({_call(*which): count for which, count in seen.sent.items()})
    moved: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for one in sent:
        moved[0][f"{one.when} {one.kind}"] += one.bytes
    for (when, kind, size), count in seen.sent.items():
        moved[1][f"{when} {kind}"] += count * size
    return [
        Check("parameters of rank 0", "elements", held(subject, mesh), seen.held),
        Check("calls of collectives", "calls", calls, theirs),
        Check("bytes of their results", "bytes", *moved),
    ]


def held(subject: LoadedModel, mesh: Mesh) -> dict[str, int]:
    """Elements that the fullest rank stores, by the class's parameters."""
    counts: Counter[str] = Counter()
    for tensor in subject.ledger.tensors(unfolded=True):
        counts[tensor.path] += int(shard(tensor.parameter, tensor.axes, mesh).elements)
    return renamed(counts, subject.config.paths(), subject.config.tensors())


def _call(when: str, kind: str, size: int) -> str:
    return f"{when} {kind} of {size:,} bytes"


def _step(subject: LoadedModel, work: Workload, mesh: Mesh, dtype: str, *, published: bool) -> Any:
    divided = {"tp": mesh.tp, "fsdp": mesh.fsdp, "sp": mesh.sp, "together": mesh.sp or mesh.plan == "megatron"}
    size: dict[str, Any] = {"batch": work.batch, "tokens": work.tokens}
    try:
        return _room().step(subject.of_class, **divided, **size, dtype=dtype, published=published)
    except AssertionError as error:  # weights of two dtypes, of which fully_shard makes no unit
        raise UsageError(
            f"{subject.name}: torch does not divide its class so: {error}", f"leave {option('fsdp')} out"
        ) from None
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{subject.name}: the transformers class refuses this config: {error!r}") from None


def _room() -> ModuleType:
    """The module that imports torch and transformers. Raises MissingExtraError where there are none."""
    try:
        from tfacct.reference import ranks
    except ImportError:
        what = "pip install transformers, and tfacct[measure]"
        raise MissingExtraError("the witnesses of a mesh need torch and transformers", what) from None
    return ranks
