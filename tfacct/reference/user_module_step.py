"""Bytes that a user's module saves for backward, on the meta device with CUDA's kernels."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from tfacct.base.errors import UsageError
from tfacct.meta.cuda import cuda_kernels
from tfacct.meta.hooks import saved_tensors
from tfacct.reference.user_module import failure


def saved_bytes(module: nn.Module, batch: int, tokens: int) -> int:
    """Bytes that autograd saves in a bf16 forward pass with a loss, without parameters and buffers.

    The module is built on meta, and is in bf16 afterwards. A transformers class computes its own loss; for others it is
    the cross-entropy of their logits in fp32. Raises UsageError.
    """
    if not all(parameter.is_meta for parameter in module.parameters()):
        raise UsageError("training steps run on meta", "leave device out")
    module.to(torch.bfloat16).train()
    ids = torch.zeros(batch, tokens, dtype=torch.long, device="meta")

    def run() -> Tensor:
        if isinstance(module, PreTrainedModel):
            return module(input_ids=ids, labels=ids, use_cache=False).loss
        logits = next(leaf for leaf in tree_leaves(module(ids)) if isinstance(leaf, Tensor) and leaf.dim() == 3)
        wanted = ids[:, -logits.shape[1] :]
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())

    try:
        with cuda_kernels(), torch.device("meta"), redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(each.bytes for each in saved_tensors(module, run))
    except (Exception, SystemExit) as error:
        raise failure(f"{type(module).__name__}, run with a loss in bf16, raised", error) from None
