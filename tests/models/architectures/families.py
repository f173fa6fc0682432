"""60 families of timm and transformers beside those of the table: small configurations, random weights."""

from __future__ import annotations

from typing import Any

PATCHES = {"img_size": 32, "patch_size": 8, "depth": 2}

TIMM: dict[str, tuple[str, int, dict[str, Any]]] = {
    "beit": ("beit_base_patch16_224", 32, {**PATCHES, "embed_dim": 48, "num_heads": 3}),
    "cait": ("cait_s24_224", 32, {**PATCHES, "embed_dim": 48, "num_heads": 3}),
    "coat": ("coat_lite_tiny", 64, {"img_size": 64, "embed_dims": [16, 24, 32, 40], "serial_depths": [1, 1, 1, 1]}),
    "convit": ("convit_tiny", 32, {**PATCHES, "local_up_to_layer": 1, "embed_dim": 12}),
    "convmixer": ("convmixer_768_32", 56, {}),
    "crossvit": ("crossvit_9_240", 240, {"embed_dim": [32, 64], "depth": [[1, 1, 0]]}),
    "davit": ("davit_tiny", 64, {"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4)}),
    "edgenext": ("edgenext_xx_small", 64, {}),
    "efficientformer": ("efficientformer_l1", 224, {"depths": (1, 1, 1, 2), "embed_dims": (16, 32, 48, 64)}),
    "efficientvit": ("efficientvit_b0", 64, {}),
    "fastvit": ("fastvit_t8", 64, {}),
    "focalnet": ("focalnet_tiny_srf", 64, {}),
    "gcvit": ("gcvit_xxtiny", 224, {}),
    "ghostnet": ("ghostnet_050", 64, {}),
    "hgnet": ("hgnetv2_b0", 64, {}),
    "hiera": ("hiera_tiny_224", 64, {"img_size": (64, 64), "embed_dim": 16, "stages": (1, 1, 1, 1)}),
    "inception_next": ("inception_next_atto", 64, {}),
    "mobilevit": ("mobilevit_xxs", 64, {}),
    "nf_regnet": ("nf_regnet_b0", 64, {}),
    "pit": ("pit_ti_224", 64, {"img_size": 64, "base_dims": [16, 16, 16], "depth": [1, 1, 1]}),
    "poolformer": ("poolformer_s12", 64, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}),
    "regnet": ("regnetx_002", 64, {}),
    "repvit": ("repvit_m0_9", 64, {}),
    "resnest": ("resnest14d", 64, {}),
    "sequencer": ("sequencer2d_s", 64, {"img_size": 64, "layers": [1, 1, 1, 1]}),
    "tnt": ("tnt_s_patch16_224", 32,
            {"img_size": 32, "embed_dim": 48, "inner_dim": 12, "depth": 2, "num_heads_outer": 3}),
    "twins": ("twins_svt_small", 64, {"img_size": 64, "depths": [1, 1, 2, 1], "embed_dims": [16, 32, 48, 64]}),
    "volo": ("volo_d1_224", 64, {"img_size": 64}),
    "xcit": ("xcit_nano_12_p16_224", 64, {"img_size": 64, "depth": 2, "embed_dim": 32}),
}  # fmt: skip
"""A model, the side of its images and what makes it small, by family."""

WORDS = 120
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {**SIZES, "vocab_size": WORDS, "max_position_embeddings": 64}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODER = {**TEXT, **STILL}
DECODER = {**TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BART = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SERIES = {"context_length": 32, "prediction_length": 8, "patch_length": 8, "num_input_channels": 3, "d_model": 16}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8, **STILL}
MASKED = ("input_ids", "attention_mask")

TRANSFORMERS: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "albert": ("AlbertModel", "AlbertConfig", MASKED, {**ENCODER, "embedding_size": 16}),
    "bart": ("BartModel", "BartConfig", MASKED, BART),
    "bloom": ("BloomForCausalLM", "BloomConfig", MASKED,
              {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4, "hidden_dropout": 0.0}),
    "convbert": ("ConvBertModel", "ConvBertConfig", MASKED, {**ENCODER, "embedding_size": 32}),
    "deberta_v2": ("DebertaV2Model", "DebertaV2Config", MASKED,
                   {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", MASKED,
                    {**DECODER, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                     "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "q_lora_rank": 16,
                     "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}),
    "distilbert": ("DistilBertModel", "DistilBertConfig", MASKED,
                   {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0,
                    "attention_dropout": 0.0}),
    "electra": ("ElectraModel", "ElectraConfig", MASKED, {**ENCODER, "embedding_size": 16}),
    "esm": ("EsmModel", "EsmConfig", MASKED,
            {**ENCODER, "pad_token_id": 0, "mask_token_id": 3, "position_embedding_type": "rotary"}),
    "falcon": ("FalconForCausalLM", "FalconConfig", MASKED,
               {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}),
    "fnet": ("FNetModel", "FNetConfig", ("input_ids",), {**ENCODER}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", MASKED, {**DECODER, "head_dim": 8, "sliding_window": 8}),
    "gpt_oss": ("GptOssForCausalLM", "GptOssConfig", MASKED,
                {**DECODER, "head_dim": 8, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "longformer": ("LongformerModel", "LongformerConfig", MASKED, {**ENCODER, "attention_window": 4}),
    "mamba2": ("Mamba2ForCausalLM", "Mamba2Config", ("input_ids",),
               {"vocab_size": WORDS, "hidden_size": 16, "state_size": 8, "num_hidden_layers": 2, "num_heads": 4,
                "head_dim": 8, "n_groups": 1, "chunk_size": 8}),
    "mistral": ("MistralForCausalLM", "MistralConfig", MASKED, {**DECODER, "sliding_window": 8}),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", MASKED,
                   {**ENCODER, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", MASKED,
                   {**TEXT, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                    "cls_token_id": 1, "sep_token_id": 2}),
    "opt": ("OPTForCausalLM", "OPTConfig", MASKED,
            {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48,
             "word_embed_proj_dim": 32, "max_position_embeddings": 64, "dropout": 0.0}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", MASKED, DECODER),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", MASKED,
                  {**DECODER, **EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", MASKED, {**DECODER, "head_dim": 8}),
    "rwkv": ("RwkvForCausalLM", "RwkvConfig", ("input_ids",),
             {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16}),
    "xlnet": ("XLNetModel", "XLNetConfig", MASKED,
              {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "dropout": 0.0}),
    "dinov2": ("Dinov2Model", "Dinov2Config", ("pixel_values",), IMAGE),
    "hubert": ("HubertModel", "HubertConfig", ("input_values",),
               {**SIZES, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
                "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "hidden_dropout": 0.0,
                "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0, "layerdrop": 0.0,
                "mask_time_prob": 0.0}),
    "patchtsmixer": ("PatchTSMixerForPrediction", "PatchTSMixerConfig", ("past_values",),
                     {**SERIES, "patch_stride": 8, "num_layers": 2, "dropout": 0.0, "head_dropout": 0.0}),
    "patchtst": ("PatchTSTForPrediction", "PatchTSTConfig", ("past_values",),
                 {**SERIES, "patch_stride": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32,
                  "loss": "mse"}),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", ("pixel_values",),
               {**SIZES, "image_size": 32, "patch_size": 8}),
    "videomae": ("VideoMAEModel", "VideoMAEConfig", ("pixel_values",), {**IMAGE, "num_frames": 4}),
}  # fmt: skip
"""Class, configuration, inputs and what makes it small, by family."""

SHAPES = {"pixel_values": (3, 32, 32), "input_values": (400,), "past_values": (32, 3)}
"""Of an input without its batch."""
