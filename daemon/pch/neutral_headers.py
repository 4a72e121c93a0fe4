"""Headers that may change places with torch's: see ``opening.py``, and the test that tries them."""

from __future__ import annotations

import re

# Standard ones, and some that were tried in both orders
NEUTRAL = frozenset(
    re.findall(
        r"\S+",
        """
        algorithm any array atomic bit bitset cassert cctype cerrno cfloat charconv chrono climits
        clocale cmath compare concepts condition_variable cstdarg cstddef cstdint cstdio cstdlib
        cstring ctime deque exception filesystem forward_list fstream functional future
        initializer_list iomanip ios iosfwd iostream istream iterator limits list locale map memory
        mutex new numeric optional ostream queue random ratio regex set shared_mutex span sstream
        stack stdexcept streambuf string string_view system_error thread tuple type_traits typeindex
        typeinfo unordered_map unordered_set utility valarray variant vector complex
        assert.h ctype.h errno.h float.h limits.h math.h stdarg.h stddef.h stdint.h stdio.h stdlib.h
        string.h time.h
        pthread.h unistd.h sys/mman.h sys/stat.h sys/time.h sys/types.h omp.h cpuid.h
        immintrin.h x86intrin.h xmmintrin.h emmintrin.h pmmintrin.h tmmintrin.h smmintrin.h
        nmmintrin.h
        """,
    )
)
# Of torch, behind one of these
MOVABLE = frozenset(
    (
        "torch/extension.h", "torch/torch.h", "torch/script.h", "torch/library.h", "torch/types.h",
        "torch/all.h", "torch/python.h", "ATen/ATen.h", "ATen/cuda/CUDAContext.h",
        "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/macros/Macros.h",
    )
)  # fmt: skip
# Headers that read Python.h, whose macros (from 3.12 on) make others define more
WITH_PYTHON = frozenset(("Python.h", "torch/extension.h", "torch/python.h"))
BY_PYTHON = frozenset(("cfloat", "float.h"))
OF_CUDA = frozenset(("cuda_runtime.h", "cuda_runtime_api.h"))
