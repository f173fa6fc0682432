"""Words, sound and both with images: transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.models.architectures.architecture import Architecture, Inputs, Make, images, noise, offline, tokens

WORDS = 300


def from_transformers(
    kind: str, config: str, outputs: tuple[str, ...], names: tuple[str, ...], **options: Any
) -> Callable[[], Any]:
    """A model of transformers as a function of tensors, with the named fields of its answer as results."""

    def build() -> Any:
        from torch import nn

        offline()
        import transformers

        config_class = getattr(transformers, config)
        accepted = {"use_cache": False} if "use_cache" not in options else {}
        settings = config_class(**options, **accepted, attn_implementation="sdpa" if kind not in EAGER else "eager")
        model = getattr(transformers, kind)(settings)

        class Fields(nn.Module):
            """The fields of the answer that are wanted, as a tuple."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *tensors: Any) -> tuple[Any, ...]:
                answer = self.model(**dict(zip(names, tensors, strict=True)))
                return tuple(getattr(answer, name) for name in outputs)

        return Fields()

    return build


EAGER = ("MambaForCausalLM", "T5ForConditionalGeneration", "Wav2Vec2Model")
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TEXT = ("input_ids", "attention_mask")
LOGITS = ("logits",)
LAST = ("last_hidden_state",)


def pairs(rng: np.random.Generator) -> Inputs:
    """A text and the beginning of another."""
    texts = tokens(WORDS)(rng)
    return {**texts, "decoder_input_ids": rng.integers(1, WORDS, (2, 10))}


def sound(rng: np.random.Generator) -> Inputs:
    """Features of sound over time, and the beginning of a text."""
    return {
        "input_features": rng.standard_normal((2, 20, 60)).astype(np.float32),
        "decoder_input_ids": rng.integers(1, WORDS, (2, 8)),
    }


def captions(rng: np.random.Generator) -> Inputs:
    """Texts and images."""
    return {**tokens(WORDS, 12)(rng), "pixel_values": rng.standard_normal((2, 3, 32, 32)).astype(np.float32)}


def _row(
    name: str,
    what: str,
    kind: str,
    config: str,
    outputs: tuple[str, ...],
    inputs: Make,
    names: tuple[str, ...],
    optimize: bool = True,
    **options: Any,
) -> Architecture:
    return Architecture(
        name,
        "transformers",
        what,
        from_transformers(kind, config, outputs, names, **options),
        inputs,
        "dynamo",
        optimize,
    )


LANGUAGE = (
    _row(
        "bert",
        "encoder",
        "BertModel",
        "BertConfig",
        ("last_hidden_state", "pooler_output"),
        tokens(WORDS),
        TEXT,
        False,
        **SMALL,
        **NO_DROPOUT,
    ),
    _row(
        "gpt2",
        "decoder",
        "GPT2LMHeadModel",
        "GPT2Config",
        LOGITS,
        tokens(WORDS),
        TEXT,
        False,
        vocab_size=WORDS,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    ),
    _row(
        "gpt_neox",
        "decoder, rotary",
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        LOGITS,
        tokens(WORDS),
        TEXT,
        False,
        **SMALL,
        bos_token_id=0,
        eos_token_id=0,
    ),
    _row(
        "llama",
        "decoder, rotary, grouped queries, RMS norm",
        "LlamaForCausalLM",
        "LlamaConfig",
        LOGITS,
        tokens(WORDS),
        TEXT,
        **SMALL,
        num_key_value_heads=2,
    ),
    _row(
        "t5",
        "encoder and decoder",
        "T5ForConditionalGeneration",
        "T5Config",
        LOGITS,
        pairs,
        (*TEXT, "decoder_input_ids"),
        False,
        vocab_size=WORDS,
        relative_attention_max_distance=100,  # 128: distances on the edges of buckets, where rounding decides
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    ),
    _row(
        "mixtral",
        "mixture of experts",
        "MixtralForCausalLM",
        "MixtralConfig",
        LOGITS,
        tokens(WORDS),
        TEXT,
        **SMALL,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        experts_implementation="batched_mm",
    ),
    _row(
        "mamba",
        "state space",
        "MambaForCausalLM",
        "MambaConfig",
        LOGITS,
        tokens(WORDS, 12, mask=False),
        TEXT[:1],
        False,
        vocab_size=WORDS,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
    ),
    _row(
        "clip",
        "text and images",
        "CLIPModel",
        "CLIPConfig",
        ("logits_per_text", "image_embeds"),
        captions,
        (*TEXT, "pixel_values"),
        False,
        use_cache=False,
        projection_dim=32,
        text_config={**SMALL, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1},
        vision_config={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "image_size": 32,
            "patch_size": 8,
        },
    ),
    _row(
        "wav2vec2",
        "sound, convolutions and attention",
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        LAST,
        noise(input_values=(2, 800)),
        ("input_values",),
        vocab_size=32,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        layerdrop=0.0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        activation_dropout=0.0,
        feat_extract_norm="group",
        mask_time_prob=0.0,
    ),
    _row(
        "whisper",
        "sound to text, encoder and decoder",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        LOGITS,
        sound,
        ("input_features", "decoder_input_ids"),
        False,
        vocab_size=WORDS,
        num_mel_bins=20,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=30,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    ),
    _row(
        "segformer",
        "segmentation, attention with reduced keys",
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        LOGITS,
        images(64, 2, name="pixel_values"),
        ("pixel_values",),
        False,
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 40, 64],
        num_attention_heads=[1, 2, 4, 4],
        decoder_hidden_size=32,
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
        **NO_DROPOUT,
    ),
)
