"""Configuration of the stand-in: the fields and defaults of the released class."""

from transformers.configuration_utils import PretrainedConfig


class NemotronLabsDiffusionConfig(PretrainedConfig):
    model_type = "nemotron_labs_diffusion"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    def __init__(
        self,
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=34,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        hidden_act="silu",
        max_position_embeddings=262144,
        initializer_range=0.02,
        rms_norm_eps=1e-5,
        use_cache=True,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
        rope_parameters=None,
        sliding_window=None,
        attention_dropout=0.0,
        mask_token_id=-1,
        block_size=32,
        dlm_paradigm="bidirectional",
        dlm_loss_weight=None,
        ar_loss_weight=1.0,
        dp_varying_mask_ratio=False,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.hidden_act = hidden_act
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.rms_norm_eps = rms_norm_eps
        self.use_cache = use_cache
        self.rope_parameters = rope_parameters
        self.sliding_window = sliding_window
        self.attention_dropout = attention_dropout
        self.mask_token_id = mask_token_id
        self.block_size = block_size
        self.dlm_paradigm = dlm_paradigm
        self.dlm_loss_weight = dlm_loss_weight
        self.ar_loss_weight = ar_loss_weight
        self.dp_varying_mask_ratio = dp_varying_mask_ratio
        super().__init__(
            pad_token_id=pad_token_id,
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            tie_word_embeddings=tie_word_embeddings,
            **kwargs,
        )
