"""Models as their libraries make them: a U-Net of diffusers, LoRA adapters of peft, models of transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="trains torch models")
transformers = pytest.importorskip("transformers", reason="makes the GPT-2")
diffusers = pytest.importorskip("diffusers", reason="makes the diffusion U-Net")
peft = pytest.importorskip("peft", reason="adds the LoRA adapters")

import lowtide  # noqa: E402

NUM_STEPS = 3
AMPLE_BYTES = 2**30
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]

Loss = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Case:
    """A model made anew, a batch of each step, and the loss of both."""

    make_model: Callable[[], Any]
    batch: Callable[[Any], Any]
    loss: Loss


def diffusion_unet() -> Any:
    return diffusers.UNet2DModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        dropout=0.1,
    )


def noise_loss(model: Any, images: Any) -> Any:
    """What a diffusion model learns: the noise, given the noisy image and the time."""
    noise = torch.randn_like(images)
    times = torch.randint(0, 1000, (len(images),))
    noisy = diffusers.DDPMScheduler(1000).add_noise(images, noise, times)
    return torch.nn.functional.mse_loss(model(noisy, times, return_dict=False)[0], noise)


def gpt2_with_lora() -> Any:
    config = transformers.GPT2Config(
        vocab_size=128, n_positions=64, n_embd=32, n_layer=3, n_head=2, bos_token_id=0, eos_token_id=0
    )
    adapters = peft.LoraConfig(
        r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(transformers.GPT2LMHeadModel(config), adapters).train()


def llama(attention: str = "eager") -> Any:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        attn_implementation=attention,
    )
    return transformers.LlamaForCausalLM(config).train()


def segformer() -> Any:
    """Hooks its modules at its first call, and returns the logits that its loss is made of, channels last."""
    config = transformers.SegformerConfig(
        hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1], num_labels=5, decoder_hidden_size=32
    )
    return transformers.SegformerForSemanticSegmentation(config).train()


def random_images(generator: Any) -> tuple[Any, Any]:
    labels = torch.randint(0, 5, (2, 64, 64), generator=generator)
    return torch.randn(2, 3, 64, 64, generator=generator), labels


def token_loss(model: Any, tokens: Any) -> Any:
    return model(input_ids=tokens, labels=tokens).loss


def random_tokens(generator: Any) -> Any:
    return torch.randint(128, (4, 64), generator=generator)


CASES = {
    "diffusers": Case(diffusion_unet, lambda generator: torch.randn(4, 3, 16, 16, generator=generator), noise_loss),
    "peft": Case(gpt2_with_lora, random_tokens, token_loss),
    "llama": Case(llama, random_tokens, token_loss),
    "segformer": Case(segformer, random_images, lambda model, batch: model(batch[0], labels=batch[1]).loss),
}
LLAMA_SDPA = Case(lambda: llama("sdpa"), random_tokens, token_loss)
"""Its attention takes another branch while it is traced: docs/troubleshooting.md."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch.set_num_threads(num_threads)


def train(
    case: Case, *, prepare: Callable[[Any], Any] = lambda model: model, within: Any = None
) -> tuple[dict[str, Any], int]:
    """All that training leaves behind, by name, and the bytes alive in the arena before its last step."""
    torch.manual_seed(0)
    model = prepare(case.make_model())
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-3)
    generator = torch.Generator().manual_seed(1)
    values: dict[str, Any] = {}
    kept_bytes = 0
    with within or contextlib.nullcontext() as session:
        for step in range(NUM_STEPS):
            kept_bytes = 0 if session is None else session.stats.resident_bytes
            optimizer.zero_grad()
            loss = case.loss(model, case.batch(generator))
            loss.backward()
            optimizer.step()
            values[f"loss {step}"] = loss.detach().clone()
        gradients = {f"gradient {name}": one.grad for name, one in model.named_parameters() if one.grad is not None}
        values |= {name: tensor.clone() for name, tensor in (model.state_dict() | gradients).items()}
        values["RNG"] = torch.get_rng_state()
    return values, kept_bytes


def different(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name, value in one.items() if not torch.equal(value, other[name])]


@pytest.fixture(scope="module", params=CASES)
def plain(request: pytest.FixtureRequest) -> tuple[Case, dict[str, Any]]:
    """A case, and what plain PyTorch leaves behind, which repeats itself."""
    case = CASES[request.param]
    values, _ = train(case)
    again, _ = train(case)
    assert not different(values, again)
    return case, values


def within_compiled_budget(model: Any) -> Any:
    return lowtide.compile(model, budget="85%", counts="compiled")


def test_compiles_within_a_budget(plain: tuple[Case, dict[str, Any]]) -> None:
    case, expected = plain
    values, _ = train(case, prepare=within_compiled_budget)
    compilation = lowtide.last_compilation()
    assert compilation is not None
    assert compilation.as_dict()["num_recomputes"] > 0
    assert not different(values, expected)


@pytest.mark.usefixtures("shim")
def test_trains_within_a_budget(plain: tuple[Case, dict[str, Any]]) -> None:
    case, expected = plain
    ample = lowtide.budget(AMPLE_BYTES)
    values, kept_bytes = train(case, within=ample)
    assert not different(values, expected)
    tight = lowtide.budget(kept_bytes + (ample.stats.peak_bytes - kept_bytes) * 3 // 5)
    values, _ = train(case, within=tight)
    assert tight.stats.num_recomputes > 0
    assert not different(values, expected)


def test_a_model_that_asks_whether_it_is_compiled_gets_the_answer_of_torch_compile() -> None:
    expected, _ = train(LLAMA_SDPA, prepare=lambda model: torch.compile(model, backend="eager"))
    torch._dynamo.reset()
    values, _ = train(LLAMA_SDPA, prepare=within_compiled_budget)
    expected = {name.replace("_orig_mod.", ""): value for name, value in expected.items()}
    assert not different(values, expected)


@pytest.mark.usefixtures("shim")
def test_within_a_budget_nobody_is_told_of_compiling() -> None:
    expected, _ = train(LLAMA_SDPA)
    ample = lowtide.budget(AMPLE_BYTES)
    _, kept_bytes = train(LLAMA_SDPA, within=ample)
    tight = lowtide.budget(kept_bytes + (ample.stats.peak_bytes - kept_bytes) * 3 // 5)
    values, _ = train(LLAMA_SDPA, within=tight)
    assert tight.stats.num_recomputes > 0
    assert not different(values, expected)
