"""The headers that torch.compile's generated sources begin with.

Inductor precompiles them before it compiles the first source, so a source behind one of them waits
for the daemon's precompiled header as well: a model has dozens of sources, each of which would read
the header for seconds.
"""

from __future__ import annotations

_FOLDER = "torch/csrc/inductor/"
# Macros of Inductor's commands that these headers, or those that they include, mention
MENTIONED = (
    "AT_BUILD_ARM_VEC256_WITH_SLEEF", "C10_USING_CUSTOM_GENERATED_MACROS", "CPU_CAPABILITY",
    "CPU_CAPABILITY_AVX2", "CPU_CAPABILITY_AVX512", "CPU_CAPABILITY_NEON", "CPU_CAPABILITY_SVE",
    "CPU_CAPABILITY_SVE256", "CPU_CAPABILITY_VSX", "CPU_CAPABILITY_ZVECTOR",
    "HAVE_ZVECTOR_CPU_DEFINITION", "STANDALONE_TORCH_HEADER", "TORCH_INDUCTOR_CPP_WRAPPER",
    "TORCH_INDUCTOR_PRECOMPILE_HEADERS", "USE_CUDA", "USE_ROCM", "USE_XPU", "__ARM_FEATURE_BF16",
)  # fmt: skip


def first_of(headers: tuple[str, ...]) -> tuple[str, ...]:
    """Of the headers that a source begins with, the one that Inductor would precompile; nothing
    where the source is not Inductor's.

    >>> first_of(("torch/csrc/inductor/cpp_prefix.h", "vector")), first_of(("torch/extension.h",))
    (('torch/csrc/inductor/cpp_prefix.h',), ())
    """
    return headers[:1] if headers and headers[0].startswith(_FOLDER) else ()
