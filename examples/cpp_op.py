"""A C++ function from an inline source, with its gradient, as a function of torch."""

import torch

import warmcc

SOURCE = """
at::Tensor forward(const at::Tensor& x) { return x * at::sigmoid(x); }

at::Tensor backward(const at::Tensor& gradient, const at::Tensor& x) {
    auto s = at::sigmoid(x);
    return gradient * s * (1 + x * (1 - s));
}
"""

module = warmcc.load_inline("silu", SOURCE, functions=["forward", "backward"])


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return module.forward(x)

    @staticmethod
    def backward(ctx, gradient):
        return module.backward(gradient, *ctx.saved_tensors)


if __name__ == "__main__":
    x = torch.randn(8, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(Silu.apply(x), torch.nn.functional.silu(x))
    assert torch.autograd.gradcheck(Silu.apply, x)
    print("silu: value and gradient are right")
