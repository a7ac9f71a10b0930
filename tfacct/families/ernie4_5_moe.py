"""ERNIE 4.5 with experts: its dense models' attention, experts beside a shared network in a range of layers."""

from typing import Annotated, ClassVar

from tfacct.architecture.parts import Head
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, UpTo, whole
from tfacct.families._endings import DECODER
from tfacct.families._ernie_like import ErnieExperts
from tfacct.families._experts import BESIDE_PATHS, CHOICE, ROUTED_TENSORS, beside_shared

RELEASED = "2025-06"


class Config(ErnieExperts):
    """`Ernie4_5_MoeConfig`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    moe_intermediate_size: Count = 1536
    moe_layer_start_index: UpTo = 1
    moe_layer_end_index: Annotated[int, whole(-1)] = -1
    moe_layer_interval: Count = 1

    stems: ClassVar = ("Ernie4_5_Moe",)
    in_files: ClassVar = ((r"\.mlp\.moe_statics\.", ".mlp.gate.moe_statics."),)
    harmless: ClassVar = frozenset(
        """
        moe_norm_min moe_capacity moe_gate moe_use_aux_free moe_aux_loss_lambda moe_layer_feed_fake_token
        moe_dropout_prob moe_orthogonal_loss_lambda moe_use_hard_gate compression_ratio enable_delay_scale_loss
        fuse_ln fuse_linear fuse_rms_norm fuse_rope fuse_swiglu use_flash_attention use_sparse_head_and_loss_fn
        use_recompute use_rmsnorm weight_share_add_bias ignored_index micro_batch_size num_acc_steps
        """.split()
    )
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {**ErnieExperts.hf_paths, **BESIDE_PATHS}
    hf_tensors: ClassVar = {
        **ROUTED_TENSORS,
        CHOICE: "model.layers.*.mlp.gate.moe_statics.e_score_correction_bias",
    }

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts."""
        last = self.num_hidden_layers - 1 if self.moe_layer_end_index == -1 else self.moe_layer_end_index
        first, step = self.moe_layer_start_index, self.moe_layer_interval
        return [first <= number <= last and (number + 1) % step == 0 for number in range(self.num_hidden_layers)]

    @property
    def num_experts_per_tok(self) -> int:
        """moe_k."""
        return self.moe_k

    def architecture(self) -> Transformer:
        """use_bias is on every product but those of the router and the experts."""
        self.whole_heads()
        biased = self.use_bias
        attention = self.attention(qkv_bias=biased, out_bias=biased)
        experts = beside_shared(
            self, self.moe_num_experts, self.moe_num_shared_experts, shared_bias=biased, choice_bias=True
        )
        kinds = {
            True: self.block(attention, experts),
            False: self.block(attention, self.feed_forward(bias=biased)),
        }
        head = Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings, bias=biased)
        return self.decoder([kinds[some] for some in self.routed()], head=head)
