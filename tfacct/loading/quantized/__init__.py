"""Quantized checkpoints: from a config's `quantization_config` to the storage of every tensor.

A method, or a field of it, that is not known here is refused by name: its bytes are not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import Storage
from tfacct.loading.model import LoadedModel
from tfacct.loading.published import FIELDS


def as_published(subject: LoadedModel) -> Storage:
    """Storage of a model as its config says. Raises UsageError for what is not known of it."""
    from tfacct.loading.quantized import methods

    if subject.whole is not None and subject.architecture.head is None:  # a part that is no language model
        raise UsageError(
            f"{subject.name}: the whole is stored quantized, and how this part is stored is not understood",
            f"give {option('dtype', 'bf16')} or another format",
        )
    said = next(value for field in FIELDS if (value := subject.raw.get(field)))
    try:
        if not isinstance(said, Mapping):
            raise ConfigError("quantization_config must be an object of fields")
        return methods.storage_of(subject, said)
    except ConfigError as error:
        other = f"give {option('dtype')} to count another format"
        hint = f"{error.hint}; or {other}" if error.hint else other
        where = f"{subject.format_file}: " if subject.format_file else ""
        raise UsageError(f"{subject.name}: {where}{error.message}", hint) from None
