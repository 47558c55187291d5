"""Training on blocks is drafting: the rows the adapter learns on are the proposal rows of a packed call."""

import json
import random
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from realmodel.adapter import ProposalAdapter  # noqa: E402
from realmodel.smollm2 import train  # noqa: E402
from realmodel.smollm2.attention import GROUPED  # noqa: E402
from realmodel.smollm2.card import FOLDER, card, measured  # noqa: E402
from realmodel.smollm2.model import bound  # noqa: E402
from simulator.records import Call  # noqa: E402

CONFIG = LlamaConfig(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2,
)  # fmt: skip


def tiny(attention="sdpa"):
    torch.manual_seed(5)
    network = LlamaForCausalLM(CONFIG).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    network.set_attn_implementation(attention)
    return network


@pytest.fixture
def trained(tmp_path):
    """(network with a random adapter as training holds it, its ProposalAdapter, the file that training saves)"""
    network, adapter = tiny(GROUPED), ProposalAdapter()
    parameters = train.trainable(network, adapter, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in parameters.values():  # as float16 keeps it
        parameter.data = (0.3 * torch.randn(parameter.shape, generator=generator)).half().float()
    train.save(parameters, tmp_path, {})
    return network, adapter, tmp_path / "adapter.safetensors"


def test_a_training_block_is_the_proposal_region_of_a_call(trained, tmp_path):
    network, adapter, file = trained
    model = bound(tiny(), None, "tiny", file)
    rng = random.Random(0)
    batch = [train.Continuation(f"s{i}", tuple(rng.randrange(3, 50) for _ in range(20 + i)), 5) for i in range(3)]
    anchors, width = torch.tensor([[5, 11, 19], [7, 5, 18], [10, 11, 12]]), 4
    with torch.no_grad():
        hidden, labels = train.draft(network, adapter, train.Prefixes(network, tmp_path / "kv"), batch, anchors, width)
        logits = iter(network.lm_head(hidden))
    for sequence, row, places in zip(batch, labels, anchors.tolist(), strict=True):
        for anchor, block in zip(places, row.tolist(), strict=True):
            prefix = sequence.tokens[: anchor + 1]
            expected = [*sequence.tokens[anchor + 1 : anchor + 1 + width], *[-100] * width][:width]
            assert block == expected
            _, bound_rows = model.session().logits(Call(prefix, (7, 8), True, (0,), width))
            for offset, label in enumerate(block):
                if label >= 0:
                    torch.testing.assert_close(next(logits), bound_rows[3 + offset], atol=2e-5, rtol=2e-5)
    assert next(logits, None) is None


def test_the_loss_is_differentiated_right(trained):
    network, _, _ = trained
    labels = torch.tensor([[[3, 4, 5], [6, 7, -100]], [[8, 9, 10], [11, -100, -100]]])
    hidden = torch.randn((labels >= 0).sum(), CONFIG.hidden_size, requires_grad=True)
    loss, gradient, lead = train.judge(network, hidden, labels, 3)
    weights = torch.exp(-torch.arange(3) / train.DECAY).expand_as(labels)[labels >= 0]
    each = torch.nn.functional.cross_entropy(network.lm_head(hidden), labels[labels >= 0], reduction="none")
    expected = (each * weights).sum() / weights.sum()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(gradient, hidden.grad, atol=1e-6, rtol=1e-4)
    assert lead.shape == (2, 2)


def test_leading_matches_stop_at_the_first_miss_and_at_the_end():
    labels = torch.tensor([[[3, 4, 5], [6, 7, -100]]])
    logits = torch.nn.functional.one_hot(torch.tensor([3, 9, 5, 6, 7]), 50).float()
    assert train.leading(logits, labels).tolist() == [[1, 2]]


def test_rounds_start_behind_what_was_right():
    sequence = train.Continuation("s", tuple(range(30)), 10)
    lead = torch.zeros(30, dtype=torch.int8)
    assert train.starts(sequence, lead, random.Random(0))[1:3] == [12, 13]
    lead[:] = 3
    found = train.starts(sequence, lead, random.Random(0))
    assert {b - a for a, b in pairwise(found)} == {4}


def test_the_card_is_that_of_the_training_shipped():
    assert (FOLDER / "MODEL_CARD.md").read_text() == card(json.loads((FOLDER / "training.json").read_text()))


def test_the_card_shows_what_a_validation_measured():
    figures = {"tokens": 30, "nfe": 20, "wall": 1.5, "rows": 1}
    row = {"name": "packed", "width": 4, "verdict": {"certified": True, "words": "EXACT"}, "figures": figures}
    parameters = {"max_new_tokens": 10, "dtype": "float32", "threads": 2, "hardware": "a processor"}
    summary = {"prompts": 3, "rows": [row, row | {"name": "linear", "figures": None}]}
    kept = measured({"replay": "packedss validate", "rows": [{"parameters": parameters, "summary": summary}]})
    text = card(json.loads((FOLDER / "training.json").read_text()) | {"decoding": kept})
    assert "| packed | 4 | EXACT | 30 | 20 | 1.500 | 75.0 | 20.0 |" in text
    assert "linear |" not in text


def test_grouped_attention_is_attention():
    tokens = torch.arange(3, 21)[None]
    mask = torch.ones(1, 18, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad():
        expected, found = (tiny(name)(tokens, attention_mask=mask).logits[0, 4:] for name in ("sdpa", GROUPED))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
