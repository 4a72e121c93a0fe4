"""Compile a model with torch.compile, and print as JSON when which step was done.

A script by itself, which imports nothing of warmcc: ``compile_steps.py CASE NUMBER`` is run by
python and by ``warmcc run``. The number is a part of the code that Inductor generates, so that
another number is code that was never compiled. Times are of the machine's clock
(CLOCK_MONOTONIC), or seconds.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def clock() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


FIRST_LINE = clock()


def three_ops(torch: Any, number: float) -> tuple[Any, Any]:
    return lambda x: torch.relu(x * number) + 1.0, torch.linspace(-1, 1, 4096)


def linear(torch: Any, number: float) -> tuple[Any, Any]:
    """Twenty linear layers."""
    layers = [torch.nn.Linear(64, 64) for _ in range(20)]
    model = torch.nn.Sequential(*layers)
    return lambda x: torch.nn.functional.gelu(model(x)) * number, torch.linspace(
        -1, 1, 512
    ).reshape(8, 64)


def resnet50(torch: Any, number: float) -> tuple[Any, Any]:
    """ResNet-50 of torchvision, whose ReLU ends at a number that is almost zero."""
    nn: Any = torch.nn
    least = number * 1e-9

    def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
        )

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, inner: int, stride: int) -> None:
            super().__init__()
            self.a, self.b = conv(inputs, inner, 1), conv(inner, inner, 3, stride)
            self.c = conv(inner, inner * 4, 1)
            other = stride != 1 or inputs != inner * 4
            self.side = conv(inputs, inner * 4, 1, stride) if other else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = self.b(self.a(x).clamp_min(least)).clamp_min(least)
            return (self.c(y) + self.side(x)).clamp_min(least)

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = conv(3, 64, 7, 2)
            blocks, inputs = [], 64
            for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for place in range(count):
                    blocks.append(Block(inputs, inner, stride if place == 0 else 1))
                    inputs = inner * 4
            self.blocks = nn.Sequential(*blocks)
            self.head = nn.Linear(inputs, 1000)

        def forward(self, x: Any) -> Any:
            x = nn.functional.max_pool2d(self.stem(x).clamp_min(least), 3, 2, 1)
            return self.head(self.blocks(x).mean((2, 3)))

    return ResNet().eval(), torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)


CASES = {"three_ops": three_ops, "linear": linear, "resnet50": resnet50}


def main() -> None:
    case, number = sys.argv[1], float(sys.argv[2])
    told: dict[str, Any] = {"first line": FIRST_LINE, "python": sys.version.split()[0]}

    def step(name: str, work: Callable[[], Any]) -> Any:
        started = clock()
        found = work()
        told[name] = clock() - started
        return found

    def torch_itself() -> Any:
        import torch

        return torch

    def dynamo() -> None:
        for name in ("torch._dynamo", "torch._inductor.compile_fx"):
            importlib.import_module(name)

    torch = step("import torch", torch_itself)
    step("import torch._dynamo", dynamo)
    told["imported"] = clock()
    told["modules at import"] = len(sys.modules)
    torch.manual_seed(0)
    model, given = CASES[case](torch, number)
    with torch.no_grad():
        expected = model(given)
        found = step("first compile", lambda: torch.compile(model)(given))
        told["done"] = clock()
        told["modules at first compile"] = len(sys.modules) - told["modules at import"]
        torch._dynamo.reset()
        step("second compile", lambda: torch.compile(model)(given))
    told["right"] = bool(torch.allclose(found, expected, rtol=1e-3, atol=1e-4))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
