"""The headers that a source's names need, as a first guess.

What is known of torch's public names stands in ``_RULES``; ATen has a header for each operator; all
other names are looked for in the headers' text (``index.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warmcc.client.slim.index import FACTORIES, Index
from warmcc.client.slim.text import ALIAS, Block, code, defines, names

TENSOR, TYPES, WHOLE = "ATen/core/Tensor.h", "torch/types.h", "torch/extension.h"
TENSOR_OPERATORS = "ATen/TensorOperators.h"
BINDING = "torch/csrc/Exceptions.h"  # torch::wrap_pybind_function, and the casters
CASTERS = "torch/csrc/utils/pybind.h"

# In code, and the header that has it.
_RULES = tuple(
    (re.compile(pattern), header)
    for pattern, header in (
        (r"\bTensor\b", TENSOR),
        (r"\bTORCH_(?:CHECK|INTERNAL_ASSERT|WARN)\w*|\bAT_(?:ERROR|ASSERT)\w*",
         "c10/util/Exception.h"),
        (r"\bAT_DISPATCH_(?!V2)\w+", "ATen/Dispatch.h"),
        (r"\bAT_DISPATCH_V2\b", "ATen/Dispatch_v2.h"),
        (r"\b(?:getCurrentCUDAStream|getDefaultCUDAStream|getStreamFromPool|CUDAStream)\b",
         "c10/cuda/CUDAStream.h"),
        (r"\bC10_CUDA_\w+", "c10/cuda/CUDAException.h"),
        (r"\bAT_CUDA_CHECK\b|\bTORCH_CUDABLAS_CHECK\b", "ATen/cuda/Exceptions.h"),
        (r"\b(?:Optional)?CUDA(?:Stream|MultiStream)?Guard\b", "c10/cuda/CUDAGuard.h"),
        (r"\bdevice_of\b", "ATen/DeviceGuard.h"),
        (r"\b(?:getCurrentCUDABlas\w*|getCurrentCUDASparseHandle|getCurrentDeviceProperties"
         r"|getDeviceProperties|canDeviceAccessPeer|warp_size)\b", "ATen/cuda/CUDAContextLight.h"),
        (r"\bparallel_(?:for|reduce)\b", "ATen/Parallel.h"),
        (r"\bPYBIND11_\w+|\b(?:py|pybind11)\s*::", CASTERS),
        (r"\bwrap_pybind_function\w*", BINDING),
        (r"\bTORCH_LIBRARY\w*", "torch/library.h"),
        (r"\btorch\s*::\s*autograd\b", "torch/csrc/autograd/custom_function.h"),
        (r"\bindexing\s*::|\bTensorIndex\b", "ATen/TensorIndexing.h"),
        (r"\bTensorIterator\w*", "ATen/TensorIterator.h"),
        (r"\b(?:NoGradGuard|AutoGradMode|InferenceMode)\b", "ATen/core/grad_mode.h"),
        (r"\bCUDA_KERNEL_LOOP\w*", "ATen/cuda/detail/KernelUtils.h"),
        (r"\b(?:IValue|List|Dict)\b", "ATen/core/ivalue.h"),
        (r"\birange\b", "c10/util/irange.h"),
        (r"\bPhilox\w*|\bCUDAGeneratorImpl\b", "ATen/cuda/CUDAGeneratorImpl.h"),
        (r"\bopmath_type\b", "ATen/OpMathType.h"),
        (r"\bacc_type\b", "ATen/AccumulateType.h"),
        (r"\bcu(?:Init|Device|Ctx|Module|Launch|Mem|Func|Tensor)[A-Z]\w*"
         r"|\bCU(?:result|device|context|module|function|tensorMap|deviceptr)\b", "cuda.h"),
    )
)  # fmt: skip
_OF_STD = {
    "algorithm": "sort stable_sort min max swap copy fill find count any_of all_of clamp transform"
    " reverse max_element min_element nth_element lower_bound upper_bound unique",
    "array": "array", "atomic": "atomic", "chrono": "chrono", "cmath": "sqrt exp log pow abs fabs"
    " tanh sin cos ceil floor round isnan isinf fmax fmin erf log1p", "cstdint": "int64_t uint8_t",
    "cstdlib": "getenv", "cstring": "memcpy memset memcmp strlen", "deque": "deque",
    "functional": "function plus multiplies hash ref", "iostream": "cout cerr endl cin",
    "iterator": "back_inserter distance", "limits": "numeric_limits", "list": "list",
    "map": "map multimap", "memory": "unique_ptr shared_ptr make_unique make_shared weak_ptr",
    "mutex": "mutex lock_guard unique_lock once_flag call_once", "numeric": "accumulate iota"
    " inner_product", "optional": "optional nullopt", "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 uniform_real_distribution normal_distribution random_device",
    "set": "set", "sstream": "stringstream ostringstream istringstream",
    "stdexcept": "runtime_error invalid_argument out_of_range logic_error",
    "string": "string to_string getline", "string_view": "string_view", "thread": "thread",
    "tuple": "tuple make_tuple tie get", "type_traits": "is_same enable_if conditional decay"
    " is_same_v enable_if_t conditional_t", "unordered_map": "unordered_map",
    "unordered_set": "unordered_set", "utility": "pair move forward make_pair",
    "variant": "variant", "vector": "vector",
}  # fmt: skip
_STD = {name: header for header, listed in _OF_STD.items() for name in listed.split()}
_OF_C = {
    "cstdio": "printf fprintf snprintf", "cstring": "memcpy memset strlen", "cassert": "assert",
    "cmath": "sqrtf expf tanhf fmaxf fabsf INFINITY NAN M_PI", "cfloat": "FLT_MAX FLT_MIN",
    "climits": "INT_MAX INT_MIN", "cstdlib": "malloc free getenv",
}  # fmt: skip
_C = {name: header for header, listed in _OF_C.items() for name in listed.split()}
# Names that are in namespace torch without torch/types.h.
_TORCHS = {
    "autograd", "Library", "CppFunction", "class_", "init", "jit", "wrap_pybind_function",
    "wrap_pybind_function_no_gil", "nn", "optim", "data", "python", "headeronly", "stable",
    "schema", "dispatch",
}  # fmt: skip
_CONSTANT = re.compile(r"^constexpr auto (k\w+) = ([\w:]+);", re.M)


def block(text: str, index: Index, *, aliases: bool, binds: bool) -> Block:
    """The first guess for a source. ``aliases``: a line may stand for ``torch/types.h``;
    ``binds``: stock binds functions of it behind its text."""
    plain = code(text)
    known = names(text)
    own = defines(text)
    found = [header for pattern, header in _RULES if pattern.search(plain)]
    found += [BINDING] if binds else []
    lines: list[str] = []
    if unqualified := _of_types(known, plain):
        if aliases:
            lines = [ALIAS, *_constants(unqualified, index)]
        else:
            found.append(TYPES)
    found += _named(known - own, index)
    return Block(tuple(dict.fromkeys(found)), lines=tuple(lines))


def _named(known: Iterable[str], index: Index) -> list[str]:
    """The headers of operators and of the standard library that names ask for."""
    found = []
    for name in known:
        found += _operators(name, index)
        if name.startswith("std::"):
            found += [_STD[part] for part in name.split("::")[1:2] if part in _STD]
    return found


def pinned(text: str, index: Index, *, binds: bool) -> set[str]:
    """Headers that a source needs whatever compiles, so that it is not tried without them. Without
    torch's casters, pybind11 would convert tensors in another way."""
    found = _named(names(text) - defines(text), index)
    if re.search(r"\bPYBIND11_\w+|\b(?:py|pybind11)\s*::", code(text)):
        found.append(CASTERS)
    return {*found, BINDING} if binds else set(found)


def _of_types(known: Iterable[str], plain: str) -> set[str]:
    """The names in ``torch::`` that are there by ``torch/types.h`` alone."""
    found = {name.split("::")[1] for name in known if name.startswith("torch::")}
    if re.search(r"\busing\s+namespace\s+torch\s*;|\bnamespace\s+\w+\s*=\s*torch\s*;", plain):
        found.add("")
    return found - _TORCHS


def _constants(wanted: set[str], index: Index) -> list[str]:
    """Lines of ``torch/types.h`` for its own names of types of elements."""
    have = dict(_CONSTANT.findall(index.text(TYPES)))
    open_ones, found = sorted(wanted & have.keys()), dict[str, str]()
    while open_ones:
        name = open_ones.pop()
        if name in have and name not in found:
            found[name] = have[name]
            open_ones.append(have[name])
    rows = [
        f"namespace torch {{ constexpr auto {name} = {value}; }}"
        for name, value in reversed(found.items())
    ]
    if "Dtype" in wanted:
        rows.append("namespace torch { using Dtype = at::ScalarType; }")
    return rows


def _operators(name: str, index: Index) -> list[str]:
    """The header of an operator that is called by a qualified name."""
    space, _, last = name.rpartition("::")
    if space not in ("at", "torch", "at::native") or (header := index.operator(last)) is None:
        return []
    return [FACTORIES] if space == "torch" and last in index.factories else [header]


def for_name(name: str, index: Index, *, per_operator: bool) -> list[str]:
    """Headers for a name that a compiler does not know, the likeliest first.

    >>> for_name("std::vector", Index([]), per_operator=True)
    ['vector']
    """
    space, _, last = name.rpartition("::")
    if last in ("at", "c10", "torch") and not space:
        return [TENSOR]
    found = [header for pattern, header in _RULES if pattern.search(name)]
    if space == "std" and last in _STD:
        found.append(_STD[last])
    elif not space:
        found += [_C[last]] if last in _C else []
        found += [_STD[last]] if last in _STD else []
    found += _operators(f"{space or 'at'}::{last}", index)
    return list(dict.fromkeys([*found, *index.declaring(last, per_operator=per_operator)[:4]]))


def reduced(block: Block, index: Index) -> Block:
    """Without headers that another one brings along, and with the macro where it saves any."""
    wanted = list(dict.fromkeys(block.headers))
    per_operator = any(
        len(index.closure(one)) > len(index.closure(one, per_operator=True)) for one in wanted
    )
    closures = {one: index.closure(one, per_operator=per_operator) for one in wanted}
    kept = [
        one
        for place, one in enumerate(wanted)
        if not any(
            one in closures[other] and (one not in closures or other not in closures[one])
            for other in wanted[:place] + wanted[place + 1 :]
        )
    ]
    return Block(tuple(sorted(kept, key=_order)), per_operator, block.lines)


def _order(header: str) -> tuple[bool, str]:
    """Torch's headers first, those of the standard library behind them."""
    return "/" not in header, header
