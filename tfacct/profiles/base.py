"""How a class runs its parts, by names that a family lists."""

from __future__ import annotations

from tfacct.base.record import record


@record
class Habits:
    """What a class does beside its parts.

    `embedding`, `residual`, `network` and `attention`: it drops numbers there, of the network's result alone.
    `narrow_softmax`: the softmax of eager attention runs in the pass's dtype, not in fp32. `fused`: queries, keys and
    values come from one product. `lingers`: attention's result stays until its block ends, if the network follows it.
    `hands_mask`: blocks that run again keep eager attention's mask. `shared_out`: the shares of a token's experts are
    made to sum to 1. `narrow_shares`: they are cast to the pass's dtype. `wide_norms`: the weights of norms scale in
    fp32, before the cast. `wide_angles`: the angles are in fp32. `norms_behind`: parts read the stream itself, and
    their results are normed. `own_positions`: each sequence's positions are worked out from a mask of its own.
    `full_mask`, `window_mask`: the mask of full attention, or of windows, is made even where no block needs it.
    `norms_around`: parts have norms in front and behind. `angles_apart`: windowed blocks turn by angles of their own.
    `norms_last`: queries and keys are normed once all products are there. `rejoins`: what is turned of a head is joined
    with the rest of it, which lays queries and keys out head by head. `fused_gate`: gate and up come from one product.
    `sliced`: queries, keys and values are slices of theirs. `drops_inside`: attention and network drop numbers of their
    results themselves. `undropped_stay`: embeddings stay beside what a dropout leaves. `scales_results`: a constant
    multiplies parts' results before they are added. `always_angles`: angles are made even where no block turns by them.
    `half_angles`: both halves of a head share theirs. `clamped`: experts' gate and up are bounded. `scored`: experts
    are scored by a sigmoid in fp32. `repeats_angles`: each block repeats the angles for neighbours that turn together.
    `joins_inside`: halves of heads go with the function that joins them. `casts_scales`: norms cast their weights to
    fp32. `wide_corrections`: what corrects experts' scores is stored in fp32. `starts_biased`: scores are added to
    their biases by distance as their product is made. `norms_sums`: parts read the stream itself, and the sum of both
    is normed. `stores_mask`: a mask of all positions is a buffer. `classifier`: it drops numbers in front of classes;
    `drops_first`: in front of the pooler's product too. `norms_narrow`: norms of results scale them in the pass's
    dtype. `turns_wide`: queries and keys turn in fp32. `written_gelu`: the gradient of the network's GELU is written
    out in Python. `inline_network`: products of networks are the block's own. `chosen_first`: experts' shares are made
    of the chosen ones' scores alone. `masked`: sdpa is handed a mask always. `indexed`: keys and values are read off
    their product by an index, which is kept; `copies_first`: and are copied for each query head right then.
    `sums_first`: results of parts side by side are summed in place, and numbers of their sum are dropped.
    `biases_apart`: biases are added to products behind them. `written_norms`: norms with a scale alone are no operation
    of torch. `turns_copies`: queries and keys are cast to fp32 before they turn, and back behind it. `narrow_router`:
    scores are made in the pass's dtype before they are in fp32. `wide_scores`: queries and keys are cast to fp32 for
    their product. `stores_masks`: a mask of all positions is a buffer of each block, and one more is made for all.
    `drops_product`: it drops numbers of what a gated network's last product reads. `stores_positions`: numbers of all
    positions, and their segments, are buffers, and blocks are handed those of a batch. `ones_stay`: what a decoder's
    mask is made of stays beside it, not the numbers of the positions. `exchanged`: tokens are sent to experts of other
    ranks. `adds_distances`: biases of all positions are added to scores, in fp32, and a mask replaces scores.
    `own_sines`: blocks read sines off a buffer of their own. `mixed`: experts are picked one after the other by a
    mixer. `norms_apart`: sums are normed in the block itself, behind a part that has let go of its tensors.
    `wide_sum`: results of experts and of the network beside them are summed in fp32. `whole_network`: no numbers of
    the network's result are dropped where those of attention's are. `one_position`: an encoder's positions are those
    of one sequence, as a decoder's are. `shared_last`: a network without a gate runs behind the experts beside it.
    `scored_narrow`: experts are scored by a sigmoid in the pass's dtype; `corrected`: numbers in fp32 correct scores
    to choose by. `fused_queries`: queries and gates of their results come from one product. `sequence_angles`: angles
    are those of each sequence. `grouped_products`: DeltaNet's products lie key head by key head. `complex_angles`:
    queries and keys turn as complex numbers in fp32, and every token goes through all experts.
    `sequence_masks`: sdpa's masks of windows are those of each sequence. `scored_first`: the router scores experts by
    a sigmoid in fp32 of narrow products, then the shared network runs, then they do. `scale_of_class`: what scales the
    embeddings is a number of the class, and no buffer. `turns_counted`: what is there while queries turn backwards is
    counted too, which of very few tokens can be a block's fullest (no rule of a mesh knows of it).
    """

    embedding: bool = False
    residual: bool = False
    network: bool = False
    attention: bool = False
    narrow_softmax: bool = False
    fused: bool = False
    lingers: bool = False
    hands_mask: bool = False
    shared_out: bool = False
    narrow_shares: bool = False
    wide_norms: bool = False
    wide_angles: bool = False
    norms_behind: bool = False
    norms_around: bool = False
    own_positions: bool = False
    full_mask: bool = False
    window_mask: bool = False
    angles_apart: bool = False
    norms_last: bool = False
    rejoins: bool = False
    fused_gate: bool = False
    drops_inside: bool = False
    undropped_stay: bool = False
    sliced: bool = False
    scales_results: bool = False
    always_angles: bool = False
    half_angles: bool = False
    clamped: bool = False
    scored: bool = False
    repeats_angles: bool = False
    casts_scales: bool = False
    joins_inside: bool = False
    wide_corrections: bool = False
    starts_biased: bool = False
    written_gelu: bool = False
    norms_sums: bool = False
    stores_mask: bool = False
    classifier: bool = False
    drops_first: bool = False
    inline_network: bool = False
    turns_wide: bool = False
    norms_narrow: bool = False
    chosen_first: bool = False
    masked: bool = False
    indexed: bool = False
    copies_first: bool = False
    sums_first: bool = False
    biases_apart: bool = False
    written_norms: bool = False
    turns_copies: bool = False
    narrow_router: bool = False
    wide_scores: bool = False
    stores_masks: bool = False
    drops_product: bool = False
    stores_positions: bool = False
    ones_stay: bool = False
    exchanged: bool = False
    adds_distances: bool = False
    own_sines: bool = False
    mixed: bool = False
    norms_apart: bool = False
    wide_sum: bool = False
    whole_network: bool = False
    one_position: bool = False
    shared_last: bool = False
    scored_narrow: bool = False
    corrected: bool = False
    fused_queries: bool = False
    sequence_angles: bool = False
    grouped_products: bool = False
    complex_angles: bool = False
    sequence_masks: bool = False
    scored_first: bool = False
    scale_of_class: bool = False
    turns_counted: bool = False

    @property
    def apart(self) -> bool:
        """True if the gradient of a part's result is not the stream's: behind a dropout, norm or scale."""
        return self.residual or self.norms_behind or self.norms_around or self.scales_results
