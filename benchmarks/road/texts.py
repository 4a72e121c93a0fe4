"""The text of sources: kernels as users write them, packages of them with a header of their own,
and mistakes.

Every text holds numbers that its module adds to what it is given, so that a result tells from which
text it came.
"""

from __future__ import annotations

import re

# Statements with a mistake. HOST is put into the function that is called, KERNEL into the kernel.
HOST = {
    "syntax": "int road = 1 +;",
    "name": "road_undeclared(1);",
    "type": "std::string road = at::ones({1});",
    "arguments": "at::add(1, 2, 3, 4, 5);",
    "header": '\n#include "road_missing.h"\n',
    "template": 'static_assert(sizeof(x) == 1, "road");',
    "symbol": "void road_missing(); road_missing();",
}
KERNEL = {"device": "rand();", "ptx": 'asm("road_wrong;");'}
BINDING = "binding"  # ``functions=`` names one that is not there

_CPP = """
at::Tensor {name}(at::Tensor x) {{
  auto y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "{name}", [&] {{
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); i++) to[i] = from[i] + {number};
  }});
  {host}
  return y;
}}
"""
_CUDA = """
__global__ void {name}_kernel(const float* from, float* to, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {kernel}
  if (i < n) to[i] = from[i] + {number};
}}

torch::Tensor {name}(torch::Tensor x) {{
  {host}
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
  auto y = torch::empty_like(x);
  int n = x.numel();
  {name}_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}}

int64_t {name}_mark() {{ return {number}; }}
"""


def function(language: str, name: str, number: int, mistake: str | None = None) -> str:
    """A function ``name`` that adds ``number``; in CUDA by a kernel, and ``name_mark`` tells it
    without a GPU.
    """
    text = _CUDA if language == "CUDA" else _CPP
    if (
        mistake is not None
        and mistake not in HOST
        and mistake != BINDING
        and (mistake not in KERNEL or text is _CPP)
    ):
        raise ValueError(f"no such mistake in {language}: {mistake}")
    return text.format(
        name=name,
        number=number,
        host=HOST.get(mistake or "", ""),
        kernel=KERNEL.get(mistake or "", ""),
    )


def package(
    language: str, count: int, number: int, edited: int, mistake: str | None
) -> dict[str, str]:
    """``count`` sources that share a header, which includes torch's, and what binds them; texts by
    file name.

    Each adds ``number``, the last one ``edited``; it has the ``mistake``, too.
    """
    ending = ".cu" if language == "CUDA" else ".cpp"
    names = [f"step_{k}" for k in range(count)]
    files = {"road.h": _header(language, names)}
    for name in names:
        own = (edited, mistake) if name == names[-1] else (number, None)
        files[name + ending] = f'#include "road.h"\n{function(language, name, *own)}'
    binding = _binding(language, names)
    if language == "CUDA":
        files["binding.cpp"] = f'#include "road.h"\n{binding}'
    else:
        files[names[-1] + ending] += binding
    return files


def _header(language: str, names: list[str]) -> str:
    declared = [f"torch::Tensor {name}(torch::Tensor x);" for name in names]
    if language == "CUDA":
        declared += [f"int64_t {name}_mark();" for name in names]
    return "\n".join(["#pragma once", "#include <torch/extension.h>", *declared, ""])


def _binding(language: str, names: list[str]) -> str:
    steps = "\n".join(f"  x = {name}(x);" for name in names)
    text = f"\ntorch::Tensor run(torch::Tensor x) {{\n{steps}\n  return x;\n}}\n"
    defined = '  m.def("run", &run);\n'
    if language == "CUDA":
        text += f"int64_t mark() {{ return {' + '.join(f'{name}_mark()' for name in names)}; }}\n"
        defined += '  m.def("mark", &mark);\n'
    return f"{text}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{defined}}}\n"


def check(language: str, called: str, added: int) -> str:
    """An expression over a ``module`` that is true when its function ``called`` adds ``added``."""
    if language != "CUDA":
        return f"module.{called}(torch.zeros(2, dtype=torch.double)).tolist() == [{added}] * 2"
    on_gpu = f"module.{called}(torch.zeros(2).cuda()).tolist() == [{added}] * 2"
    mark = "mark" if called == "run" else f"{called}_mark"
    return f"module.{mark}() == {added} and (not torch.cuda.is_available() or {on_gpu})"


def stamp(path: str, number: int, mistake: str | None) -> str:
    """What is put at the end of a foreign file to make it one that nobody has seen: code, as a
    comment would leave what compilers read the same. In CUDA a kernel, too, for their device
    code."""
    text = (
        f'\nextern "C" int {stamped(path)}() {{ {HOST.get(mistake or "", "")} return {number}; }}\n'
    )
    if path.endswith(".cu"):
        text += f'extern "C" __global__ void {stamped(path)}_kernel(int* x) {{ *x = {number}; }}\n'
    return text


def stamped(path: str) -> str:
    """The name of the function that ``stamp`` puts into a file."""
    return "road_" + re.sub(r"\W", "_", path)


def check_stamps(numbers: dict[str, int]) -> str:
    """An expression over a ``module`` that is true when the function of each stamped file gives its
    number.
    """
    called = [f"library.{stamped(path)}() == {number}" for path, number in numbers.items()]
    return f"(lambda library: {' and '.join(called)})(ctypes.CDLL(module.__file__))"
