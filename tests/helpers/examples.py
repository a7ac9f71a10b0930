"""The examples, what each prints, and what each needs."""

# Models of parts, with their parameters by hand.
MODELS = {
    "lecture_transformer.toml": 599_956_082,
    # tied table; 16 layers of q, o 768·768, k, v 768·192, norms of 64 on q and k, 3·768·2,048, two norms; the last norm
    "local_decoder.toml": 32_000 * 768 + 16 * (2 * 768**2 + 2 * 768 * 192 + 2 * 64 + 3 * 768 * 2_048 + 2 * 768) + 768,
    # tied table and a bias of the head; 32·8 scores of distances; 6 layers of 4·(512² + 512), the router 512·8, 8
    # experts of 3·512·1,024, a shared one of 3·512·512, two norms with shifts
    "expert_encoder.toml": 30_000 * 512
    + 30_000
    + 32 * 8
    + 6 * (4 * (512**2 + 512) + 512 * 8 + 8 * 3 * 512 * 1_024 + 3 * 512 * 512 + 4 * 512),
    # tied table; 6 Mamba blocks: into 2·1,536 channels, 4 taps and a shift for each, out of each a step of rank 48 and
    # two vectors of 16, the step's rows and shifts, 16 decays and a skip for each, back, a norm; 2 blocks of attention:
    # q, o 768·768, k, v 768·192, 3·768·2,048, two norms; the last norm
    "hybrid_decoder.toml": 32_000 * 768
    + 6 * (768 * 2 * 1_536 + 1_536 * (4 + 1 + 48 + 2 * 16 + 48 + 1 + 16 + 1) + 1_536 * 768 + 768)
    + 2 * (2 * 768**2 + 2 * 768 * 192 + 3 * 768 * 2_048 + 2 * 768)
    + 768,
    # tied table; 26 layers of q, o 1,152·1,024, k, v 1,152·256, norms of 256 on q and k, 3·1,152·6,912, four norms; the
    # last norm
    "gemma_like.toml": 262_144 * 1_152
    + 26 * (2 * 1_152 * 1_024 + 2 * 1_152 * 256 + 2 * 256 + 3 * 1_152 * 6_912 + 4 * 1_152)
    + 1_152,
    # table and head; 61 layers of q by way of 1,536 to 128 heads of 192, the latent 512 + 64 and from it 128 heads of
    # 128 + 128, back, norms of 1,536 and 512 and two more; 3 networks of 18,432; 58 routers, 257 experts; the last norm
    "deepseek_like.toml": 2 * 129_280 * 7_168
    + 61 * (7_168 * 1_536 + 1_536 * 128 * 192 + 7_168 * 576 + 512 * 128 * 256 + 128 * 128 * 7_168 + 2_048 + 2 * 7_168)
    + 3 * 3 * 7_168 * 18_432
    + 58 * (7_168 * 256 + 257 * 3 * 7_168 * 2_048)
    + 7_168,
    # table and head; 36 layers of DeltaNet: q and k of 16·128, v and gate of 32·128, a rate and a decay for each of 32
    # heads, 4 taps for 8,192 channels, 2 numbers a head, a norm of 128, back; 12 of attention: q, gate and o of 16·256,
    # k and v of 2·256, norms of 256; 48 routers, 513 networks, the gate of one; two norms a layer, and the last
    "qwen3_next_like.toml": 2 * 151_936 * 2_048
    + 36 * (2_048 * (2 * 2_048 + 2 * 4_096 + 2 * 32) + 8_192 * 4 + 2 * 32 + 128 + 4_096 * 2_048)
    + 12 * (3 * 2_048 * 4_096 + 2 * 2_048 * 512 + 2 * 256)
    + 48 * (2_048 * 512 + 513 * 3 * 2_048 * 512 + 2_048 + 2 * 2_048)
    + 2_048,
    # table and head; 28 layers of Mamba as above, 8,192 channels and a rank of 256; 4 of attention, q, o 4,096·4,096,
    # k, v 4,096·1,024; 16 networks; 16 routers, each with 16 experts; two norms a layer, and the last
    "jamba_like.toml": 2 * 65_536 * 4_096
    + 28 * (4_096 * 2 * 8_192 + 8_192 * (4 + 1 + 256 + 2 * 16 + 256 + 1 + 16 + 1) + 8_192 * 4_096)
    + 4 * (2 * 4_096**2 + 2 * 4_096 * 1_024)
    + 16 * 3 * 4_096 * 14_336
    + 16 * (4_096 * 16 + 16 * 3 * 4_096 * 14_336)
    + 32 * 2 * 4_096
    + 4_096,
}
