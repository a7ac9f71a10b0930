"""Quantized checkpoints: from a config's `quantization_config` to the storage of every tensor.

Unknown methods and fields raise an error with their name.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.base.errors import ConfigError, UsageError
from tfacct.base.spelling import option
from tfacct.ledger.storage import Storage, storage
from tfacct.loading.model_description import FORMAT_FIELDS, ModelDescription
from tfacct.loading.quantized.names import Modules, unquantized_dtype


def as_published(model: ModelDescription) -> Storage:
    """Storage of a model according to its config. Raises UsageError if a method or field is not supported."""
    from tfacct.loading.quantized import methods

    encoder = model.composite is not None and model.architecture.head is None  # a part without a language model
    field, listed_format = next((field, value) for field in FORMAT_FIELDS if (value := model.raw.get(field)))
    try:
        if not isinstance(listed_format, Mapping):
            raise ConfigError(f"{field} must be an object with fields")
        found = methods.storage_of(model, listed_format, "" if model.format_file else field)
        return _unquantized_encoder(model, found) if encoder else found
    except ConfigError as error:
        if encoder:
            raise _unsupported_part(model) from None
        other = f"give {option('dtype')} to count another format"
        hint = f"{error.hint}; or {other}" if error.hint else other
        where = f"{model.format_file}: " if model.format_file else ""
        raise UsageError(f"{model.name}: {where}{error.message}", hint) from None


def _unquantized_encoder(model: ModelDescription, found: Storage) -> Storage:
    """Storage of an encoder and its projector, if the method quantizes none of their matrices.

    Raises UsageError otherwise, because published files do not follow such configs.
    """
    modules = Modules(model)
    for tensor in model.ledger.tensors(unfolded=found.by_block):
        if found.choose(tensor.stored._replace(role=modules.role(tensor), path=tensor.path)) is not None:
            raise _unsupported_part(model)
    return storage(unquantized_dtype(model))


def _unsupported_part(model: ModelDescription) -> UsageError:
    return UsageError(
        f"{model.name}: the model is stored quantized, but the format of this part is not supported",
        f"give {option('dtype', 'bf16')} or another format",
    )
