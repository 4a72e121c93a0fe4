"""An evaluation loop: build each candidate, report its errors, check its result, and time it."""

import time

import torch

import warmcc

CANDIDATES = {
    "one_pass": "at::Tensor f(at::Tensor x) { return at::softmax(x, -1); }",
    "by_hand": """
at::Tensor f(at::Tensor x) {
    auto e = at::exp(x - std::get<0>(x.max(-1, true)));
    return e / e.sum(-1, true);
}""",
    "not_normalized": "at::Tensor f(at::Tensor x) { return at::exp(x); }",
    "does_not_compile": "at::Tensor f(at::Tensor x) { return at::softmax(x, axis); }",
}


def evaluate(name: str, source: str) -> str:
    """One line about a candidate."""
    try:
        module = warmcc.load_inline(f"candidate_{name}", source, functions=["f"])
    except warmcc.CompileError as error:
        first = next(one for one in error.diagnostics if "error" in one.severity)
        return f"line {first.line}: {first.message}"
    x = torch.randn(64, 1000)
    if not torch.allclose(module.f(x), torch.softmax(x, -1), atol=1e-6):
        return "wrong result"
    began = time.perf_counter()
    for _ in range(20):
        module.f(x)
    return f"{(time.perf_counter() - began) / 20 * 1e6:.0f} µs per call"


if __name__ == "__main__":
    for name, source in CANDIDATES.items():
        print(f"{name}: {evaluate(name, source)}")
