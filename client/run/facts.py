"""What a zygote and a run must have in common, beside what a fork can be given.

A zygote is started by a launcher, and inherits what that has. Its socket is named by a digest of
all this, so that another launcher finds it only where a new process would be the same.
"""

from __future__ import annotations

import os
import sys

from warmcc.version import __version__

# Variables that torch, numpy and the libraries which they load look at before the first line of a
# script could: by reading their sources, and with getenv() replaced. What Python code reads at
# import, the zygote notes itself (daemon/run/imported.py).
PREFIXES = (
    "PYTHON", "__PYVENV", "LD_", "GLIBC", "MALLOC_", "LC_", "LANG", "LOCPATH", "NLSPATH", "GCONV_",
    "TZ", "TORCH", "PYTORCH", "ATEN", "C10", "CAFFE2", "KINETO", "OMP_", "GOMP_", "KMP_", "ACC_",
    "MKL_", "MKLDNN_", "DNNL_", "ONEDNN_", "INTEL_", "I_MPI_", "MPI_", "OMPI_", "PMI_",
    "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NPY_", "NUMPY", "NUMEXPR_", "GFORTRAN_", "OPENSSL_",
    "CUDA", "CUBLAS", "CUDNN", "CUFFT", "CASK_", "NVIDIA", "NVRTC_", "NV_", "NCCL", "LIBNVVM_",
    "LLVM_", "NETWORKX", "HIP", "ROCM", "HSA_", "SYCL", "ZE_", "TRITON", "AS_", "ASAN_", "LSAN_",
    "TSAN_", "UBSAN_", "COVERAGE_", "COV_CORE_", "TQDM_", "WARMCC_",
)  # fmt: skip
# Lazily read, in the process that uses a GPU: at the first call of CUDA.
LATE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_PATH")
# Where the folders of warmcc are: no matter of the program's.
OURS = ("WARMCC_RUNTIME_DIR", "WARMCC_CACHE_DIR", "WARMCC_STATE_DIR", "WARMCC_CONFIG")
# Options as variables with which a zygote is right, since it starts with them.
PYTHONS = (
    "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONNOUSERSITE", "PYTHONBREAKPOINT", "PYTHONSTARTUP",
    "PYTHONFAULTHANDLER", "PYTHONPYCACHEPREFIX", "PYTHON_COLORS", "PYTHON_HISTORY",
    "PYTHON_BASIC_REPL",
)  # fmt: skip
PLAIN = ("LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", "LD_PROFILE")
_STATUS = (
    b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp", b"Cpus_allowed:",
    b"Mems_allowed:", b"CoreDumping:", b"THP_enabled:",
)  # fmt: skip
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "time", "user", "uts")


class Process:
    """The running process, as the kernel has it: session, process group, terminal (0: none),
    niceness, and the masks of ignored and blocked signals. Raises OSError, ValueError."""

    def __init__(self) -> None:
        self.status = read("/proc/self/status")
        fields = read("/proc/self/stat").rpartition(b")")[2].split()
        self.group, self.session, self.terminal = (int(field) for field in fields[2:5])
        self.nice = int(fields[16])
        self.scheduling = b" ".join(fields[37:39])
        masks = {
            line[:7]: int(line[7:], 16)
            for line in self.status.splitlines()
            if line.startswith((b"SigIgn:", b"SigBlk:"))
        }
        self.ignored, self.blocked = masks[b"SigIgn:"], masks[b"SigBlk:"]


def why_plain(environment: dict[str, str]) -> str:
    """The variable for which no zygote is right; '' where there is none."""
    for name, value in environment.items():
        if name in PLAIN and value:
            return f"{name} is set"
        if name.startswith("PYTHON") and value and name not in PYTHONS:
            return f"{name} is set"
    if any(not os.path.isabs(one) for one in environment.get("PYTHONPATH", "/").split(":")):
        return "PYTHONPATH names a folder relative to the working directory"
    return ""


def keyed(environment: dict[str, str]) -> dict[str, str]:
    """The variables that a zygote must have been started with, in their order by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and name not in LATE and name not in OURS
    }


def gather(
    python: str, profile: str, process: Process, environment: dict[str, str] | None = None
) -> bytes:
    """All facts of a program with this environment, or the process's: ``name=value`` between NULs,
    for the digest and for ``--explain``. Raises OSError."""
    environment = dict(os.environ) if environment is None else environment
    root = os.stat("/")
    found = {
        "warmcc": __version__, "format": "1", "python": python, "version": sys.version,
        "profile": profile, "nice": str(process.nice), "limits": _text("/proc/self/limits"),
        "cgroup": _text("/proc/self/cgroup"), "oom_score_adj": _text("/proc/self/oom_score_adj"),
        "label": _text("/proc/self/attr/current"), "scheduling": process.scheduling.decode(),
        "root": f"{root.st_dev} {root.st_ino}",
    }  # fmt: skip
    for name in _NAMESPACES:
        found[f"namespace {name}"] = _link(f"/proc/self/ns/{name}")
    for line in process.status.splitlines():
        if line.startswith(_STATUS):
            title, _, text = line.partition(b":")
            found[title.decode()] = text.strip().decode()
    if process.terminal:
        began = read(f"/proc/{process.session}/stat").rpartition(b")")[2].split()[19].decode()
        found["terminal"] = f"{process.terminal}"
        found["session"] = f"{process.session} since {began}"
    found |= {f"${name}": value for name, value in keyed(environment).items()}
    return b"\0".join(os.fsencode(f"{name}={value}") for name, value in found.items())


def digest(facts: bytes) -> str:
    """A name for facts."""
    from _blake2 import blake2b  # hashlib loads OpenSSL

    name: str = blake2b(facts, digest_size=32).hexdigest()
    return name


def differences(mine: bytes, theirs: bytes) -> list[str]:
    r"""The names of facts that differ.

    >>> differences(b"a=1\0b=2", b"b=3\0a=1\0c=")
    ['b', 'c']
    """
    ours, others = (
        dict(one.split(b"=", 1) for one in facts.split(b"\0") if b"=" in one)
        for facts in (mine, theirs)
    )
    names = {name for name in {*ours, *others} if ours.get(name) != others.get(name)}
    return sorted(os.fsdecode(name) for name in names)


def umask(process: Process) -> int:
    """The mask of modes of new files, without changing it. Raises ValueError."""
    for line in process.status.splitlines():
        if line.startswith(b"Umask:"):
            return int(line[6:], 8)
    raise ValueError("the kernel does not tell the umask")


def read(path: str) -> bytes:
    """A small file's content. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blocks = []
        while block := os.read(descriptor, 1 << 16):
            blocks.append(block)
        return b"".join(blocks)
    finally:
        os.close(descriptor)


def _text(path: str) -> str:
    """A file's content; '' where the kernel has no such file, or refuses it."""
    try:
        return os.fsdecode(read(path)).strip("\0\n")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
