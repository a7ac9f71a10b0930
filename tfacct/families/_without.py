"""Types that are refused by name, with the reason of each: those that no family here comes near."""

from collections.abc import Mapping

_ONE_BY_ONE: Mapping[str, str] = {
    "arctic": "its experts read what a block reads, beside attention and a network, and no part here does that",
    "bigbird_pegasus": "its encoder attends in blocks beside global and random ones, and no part here does that",
    "blip": "its language model attends to the rows of an image from BERT's blocks, and no family here does that",
    "blt": "bytes are gathered in patches whose ends another model says, and no part here does that",
    "canine": "it hashes characters into the rows of several tables, and no part here does that",
    "clap": "its audio is read in windows that are merged in stages, and no part here does that",
    "convbert": "convolutions whose kernels are made of the tokens stand beside its heads, and no part here does that",
    "cost_wise_gemma": "it joins tokens between its layers, and later ones read fewer, and no part here does that",
    "doge": "a mask made of its values chooses keys, and no part here does that",
    "florence2": "its language model's encoder reads the rows of an image in front of its tokens",
    "fnet": "it mixes tokens by Fourier transforms, which are no products, and no part here does that",
    "funnel": "its blocks take tokens together, and later ones read fewer, and no part here does that",
    "git": "the rows of an image in front of its tokens see one another, and no part here counts such pairs",
    "grove_moe": "groups of its experts share smaller ones, and no part here does that",
    "hymba": "its layers share keys beside states, behind learned tokens, and no part here does that",
    "ibert": "its products are of whole numbers of 8 bits, and no part here has those",
    "inkling2_text": "attention over sums of its blocks weighs what each reads, and no part here does that",
    "inkling_text": "its keys, its values and what each part gives pass convolutions, and no part here does all that",
    "lilt": "a narrower stream of places on a page runs beside its tokens, and no part here does that",
    "longt5": "its encoder pads a source to whole blocks that see their neighbours, and no part here does that",
    "luke": "its queries differ for pairs of words and entities, and no part here does that",
    "minicpmo": "its config does not say whose blocks its language model has",
    "minicpmv": "its config does not say whose blocks its language model has",
    "molmo": "its table has rows of tokens that its head does not score, and no part here has those",
    "molmo2_text": "its table has rows of tokens that its head does not score, and no part here has those",
    "moondream1": "its config does not say its sizes, which stand in its code",
    "Motif": "its activation is a polynomial whose powers pass norms, and no part here has that",
    "mra": "its scores are of blocks at several resolutions, and no part here has those",
    "nllb-moe": "its class sends each token to the first expert once for each that it is not sent to: no model's work",
    "nystromformer": "landmarks stand for its queries and keys, and no part here does that",
    "pegasus_x": "its encoder attends in blocks beside global tokens, and no part here does that",
    "perceiver": "learned rows read what it is given, whatever that is, and no family here does that",
    "phi3small": "most of its layers read blocks of keys that a pattern chooses, and no part here does",
    "phi4flash": "its upper layers read the keys, values or states of one before them, and no part here does so",
    "plamo2": "its Mamba has heads, and norms of its steps, B and C, and no part here has both",
    "prophetnet": "its decoder predicts several tokens ahead with streams of their own, and no part here does that",
    "qwen4_exp_text": "its layers read tables of n-grams of tokens, low ranks mix its streams: no part here does that",
    "reformer": "its attention sorts tokens by hashes, and no part here does",
    "rwkv7": "its state is changed by products of vectors that tokens make of low ranks, and no part here does that",
    "squeezebert": "its products are of groups of channels, and no part here has those in attention and networks",
    "step3_text": "its queries are made of a latent beside one head of keys and values, and no part here does that",
    "switch_transformers": "an expert leaves out what is beyond its capacity: what runs depends on the tokens",
    "tapas": "its tokens have tables of rows, columns and ranks of a page's table, and no part here has those",
    "timesformer": "its blocks attend in space and then in time, and no part here does that",
    "vit_mae": "a decoder of its own stands in for the patches that it hides, and no part here does that",
    "voxtral_realtime_text": "how late it writes scales its norms, by products of its own, and no part here does that",
    "xlstm": "exponentials that a running maximum holds gate its matrices, and no part here does that",
    "xmod": "each of its blocks has an adapter for every language, and no part here has those",
    "yolos": "learned tokens beside its patches find things, and no part here scores and places those",
    "yoso": "its attention draws keys by hashes, and no part here does that",
}
_ALIKE: Mapping[str, str] = {
    "its config names another repository in place of its text model's sizes": "jina_clip ultravox",
    "its state is a matrix of each head, and the one part of its kind here is RWKV-4's": "rwkv5 rwkv6",
    "it is made of convolutions over neighbouring pixels, and no part here has those": """
        bit convnext convnextv2 dinov3_convnext efficientnet hgnet_v2 mobilenet_v1 mobilenet_v2 poolformer
        pp_lcnet regnet resnet
    """,
    "its blocks stand in stages of ever fewer and wider patches, and no part here does that": """
        cvt dinat donut-swin focalnet glpn hiera levit maskformer-swin mobilevit mobilevitv2 pvt pvt_v2
        segformer swiftformer swin swin2sr swinv2
    """,
    "convolutions over a waveform stand in front of its blocks, and no part here has those": """
        data2vec-audio hubert sew sew-d speecht5 unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm
    """,
    "its blocks have convolutions beside attention, and no part here has those": """
        fastspeech2_conformer granite_speech5_ctc lasr_ctc lasr_encoder parakeet_ctc parakeet_encoder
        parakeet_rnnt parakeet_tdt seamless_m4t seamless_m4t_v2 wav2vec2-bert
    """,
    "it makes or packs sound by convolutions, and no part here has those": """
        bark dac encodec higgs_audio_v2_tokenizer mimi univnet vits xcodec xcodec2
    """,
    "it reads the numbers of a series in place of tokens, and no part here does that": """
        autoformer informer patchtsmixer patchtst time_series_transformer timesfm timesfm2_5
    """,
    "learned queries find things in maps that another network makes of an image, and no part here does that": """
        conditional_detr d_fine dab-detr deformable_detr deimv2 detr grounding-dino mask2former maskformer
        mm-grounding-dino omdet-turbo oneformer rt_detr rt_detr_v2 table-transformer
    """,
    "a decoder of masks reads what it makes of an image, and no part here does that": """
        edgetam edgetam_video sam sam2 sam2_video sam3 sam3_tracker sam3_tracker_video sam3_video sam_hq
    """,
    "it joins one of many encoders to one of many decoders, and no family here does that": """
        encoder-decoder rag speech-encoder-decoder vision-encoder-decoder vision-text-dual-encoder
    """,
    "scores of places on a page are added to those of its tokens, and patches of the page stand among these": """
        layoutlmv2 layoutlmv3 layoutxlm
    """,
    "its heads score and place what each patch of an image shows, and no part here does that": """
        owlv2 owlvit
    """,
    "its patches are of several frames, and no family here reads those": """
        videomae vivit vjepa2
    """,
    "it makes several streams of codes of sound at once, and no part here does that": """
        csm dia moshi musicgen musicgen_melody
    """,
}
"""A reason → the types that it is true of: most are no language models, and read pixels or sound."""
_WHOLES = {"inkling": "inkling_mm_model", "inkling2": "inkling2"}
_WHOLES |= {"molmo2": "molmo2", "voxtral_realtime": "voxtral_realtime"}
_WHOLES |= {"qwen4_exp": "qwen4_exp", "step3": "step3_vl"}
WITHOUT = {
    **_ONE_BY_ONE,
    **{name: reason for reason, types in _ALIKE.items() for name in types.split()},
    **{whole: _ONE_BY_ONE[f"{stem}_text"] for stem, whole in _WHOLES.items()},
}
"""Types → why they are not counted; so are the wholes around some language models."""
HEADS: Mapping[str, str] = {
    "HF_ColBERT": "a product behind its body makes a short vector of each token, and no field here says how short",
    "LlamaForRewardModelWithGating": "a network of its own weighs the scores of several objectives",
}
"""Classes of files with code of their own, of known bodies, that are refused by name."""
