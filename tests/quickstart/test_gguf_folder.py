"""GGUF files become Hugging Face folders: a tiny one made here, and the real small model."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.dtypes import decode_bf16
from trtllm_kit.errors import StorageError, UnknownArchitecture, WeightFileError
from trtllm_kit.progress import Silent
from trtllm_kit.quickstart.gguf_folder import unpermute, write_hf_folder
from trtllm_kit.reference.sampling import Sampler

GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Interleave the halves of each head: row 2i of a head is row i, row 2i + 1 is row i + half."""
    out = np.empty_like(rows)
    width = len(rows) // heads
    for head in range(heads):
        for at in range(width // 2):
            out[head * width + 2 * at] = rows[head * width + at]
            out[head * width + 2 * at + 1] = rows[head * width + width // 2 + at]
    return out


def write_gguf(path: Path, source: Path, architecture: str = "llama", pre: str = "smollm") -> Path:
    """Write a tiny Llama's folder as GGUF, float32, with a vocabulary of bytes and one merge."""
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    tokens = [*model["vocab"], *(f"<spare{number}>" for number in range(config["vocab_size"] - len(model["vocab"])))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<") and len(token) > 1 else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    weights = open_weights(source)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name in weights.tensors:
        values = decode_bf16(weights.read(name))
        module = name.removesuffix(".weight")
        if module in OUTER:
            writer.add_tensor(f"{OUTER[module]}.weight", values)
            continue
        _, _, layer, inner = module.split(".", 3)
        short = GGUF_NAMES[inner]
        writer.add_tensor(f"blk.{layer}.{short}.weight", permute(values, heads[short]) if short in heads else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_comes_back_as_it_was(tmp_path: Path, tied: bool) -> None:
    """Weights, shape of the model and logits equal the folder the GGUF file was made of."""
    source = write_tiny_model(tmp_path / "source", tie_word_embeddings=tied, rope_theta=100000.0)
    folder = write_hf_folder(write_gguf(tmp_path / "m.gguf", source), tmp_path / "out")
    before, after = open_weights(source), open_weights(folder)
    assert before.tensors.keys() == after.tensors.keys()
    for name in before.tensors:
        np.testing.assert_array_equal(before.read(name), after.read(name))
    one, other = load_reference(source), load_reference(folder)
    assert one.spec.model_copy(update={"eos_tokens": ()}) == other.spec.model_copy(update={"eos_tokens": ()})
    np.testing.assert_array_equal(one.forward([5, 6, 7], one.new_cache()), other.forward([5, 6, 7], other.new_cache()))


def test_the_tokenizer_keeps_digits_apart_and_special_tokens_whole(tmp_path: Path) -> None:
    """SmolLM's pre-tokeniser: 12 is two tokens, a control token one, and text survives."""
    source = write_tiny_model(tmp_path / "source")
    folder = write_hf_folder(write_gguf(tmp_path / "m.gguf", source), tmp_path / "out")
    tokenizer = load_tokenizer(folder)
    assert ["1", "2", "Ġthe", "Ċ"] == tokenizer.encode("12 the\n").tokens
    assert [3] == tokenizer.encode("<|im_start|>").ids
    assert "naïve 你好 12" == tokenizer.decode(tokenizer.encode("naïve 你好 12").ids)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert ("<s>", "</s>", "{{ messages }}") == (config["bos_token"], config["eos_token"], config["chat_template"])


def test_unpermute_undoes_llama_cpp_s_order() -> None:
    """Rows of each head come back as halves."""
    rows = np.arange(24, dtype=np.float32).reshape(12, 2)
    np.testing.assert_array_equal(rows, unpermute(permute(rows, 3), 3))


def test_other_models_tokenizers_and_broken_files_are_refused(tmp_path: Path) -> None:
    """By name, in the kit's form."""
    source = write_tiny_model(tmp_path / "source")
    with pytest.raises(UnknownArchitecture, match="'bert'"):
        write_hf_folder(write_gguf(tmp_path / "a.gguf", source, architecture="bert"), tmp_path / "out")
    with pytest.raises(UnknownArchitecture, match="deepseek"):
        write_hf_folder(write_gguf(tmp_path / "b.gguf", source, pre="deepseek-llm"), tmp_path / "out")
    (tmp_path / "c.gguf").write_bytes(b"not gguf" * 9)
    with pytest.raises(WeightFileError, match="not a sound GGUF"):
        write_hf_folder(tmp_path / "c.gguf", tmp_path / "out")
    with pytest.raises(StorageError):
        write_hf_folder(tmp_path / "nowhere.gguf", tmp_path / "out")


# --- the real small model -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as a BF16 Hugging Face folder."""
    return write_hf_folder(smollm2_gguf, tmp_path_factory.mktemp("hf"))


def answer(folder: Path, prompt: str, tokens: int) -> str:
    """Continue a prompt greedily."""
    model, tokenizer, sampler = load_reference(folder), load_tokenizer(folder), Sampler()
    cache = model.new_cache()
    logits = model.forward(tokenizer.encode(prompt).ids, cache, last_only=True)
    said: list[int] = []
    for _ in range(tokens):
        said.append(sampler.pick(logits[-1]))
        logits = model.forward(said[-1:], cache)
    return tokenizer.decode(said)


@pytest.mark.smollm2
def test_the_capital_of_france_is_paris_before_and_after_fp8(smollm2: Path, tmp_path: Path) -> None:
    """The BF16 folder and the FP8 checkpoint both know it, and the report says how close they are."""
    assert answer(smollm2, "The capital of France is", 3).startswith(" Paris")
    plan = plan_for(smollm2, "fp8", "fp8", samples=16, tokens_per_sample=256)
    quality = convert(smollm2, plan, tmp_path / "fp8", Silent()).manifest.facts["quality"]
    assert answer(tmp_path / "fp8", "The capital of France is", 3).startswith(" Paris")
    assert quality["logit_cosine"] > 0.985
    assert quality["top1_agreement"] > 0.85
    assert quality["perplexity_converted"] < 1.06 * quality["perplexity_source"]


@pytest.mark.smollm2
@pytest.mark.oracle
def test_transformers_reads_the_same_weights_tokens_and_logits(smollm2: Path, smollm2_gguf: Path) -> None:
    """Its own GGUF reader gives the folder's weights; its tokenizer the same ids; its forward pass the same logits."""
    torch = pytest.importorskip("torch", reason="the oracle needs torch and transformers")
    transformers = pytest.importorskip("transformers", reason="the oracle needs torch and transformers")
    where = {"gguf_file": smollm2_gguf.name}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(smollm2_gguf.parent, dtype=torch.float32, **where)
    ours = open_weights(smollm2)
    assert {"lm_head.weight"} == theirs.state_dict().keys() - ours.tensors.keys()
    for name in ours.tensors:
        expected = theirs.state_dict()[name].to(torch.bfloat16).view(torch.uint16).numpy()
        np.testing.assert_array_equal(expected, ours.read(name))
    text = "In 2024, naïve 你好: x**2 == 3.14159\n\n\tdef f():  # <|im_start|>user"
    tokens = transformers.AutoTokenizer.from_pretrained(smollm2_gguf.parent, **where)(text).input_ids
    assert tokens == load_tokenizer(smollm2).encode(text).ids
    plain = transformers.AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logits = plain(torch.tensor([tokens])).logits[0].numpy()
    model = load_reference(smollm2)
    np.testing.assert_allclose(logits, model.forward(tokens, model.new_cache()), atol=1e-3)
