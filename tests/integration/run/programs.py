"""Small programs that show what a process of Python is: each runs under ``python`` and under
``warmcc run``, and all that it prints, writes and returns has to be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """``words`` are python's arguments; ``files`` are written before; ``variables`` are set."""

    words: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)


PROGRAMS: dict[str, Program] = {}


def _script(name: str, text: str, *words: str, stdin: str = "", **variables: str) -> None:
    PROGRAMS[name] = Program(("script.py", *words), {"script.py": text}, stdin, variables)


def _command(name: str, text: str, *words: str, stdin: str = "") -> None:
    PROGRAMS[name] = Program(("-c", text, *words), {}, stdin)


def _module(name: str, files: dict[str, str], *words: str) -> None:
    PROGRAMS[name] = Program(("-m", *words), files)


# --- the main module
_MAIN = """import sys
print(__name__, __file__, __spec__, __package__, __doc__, __builtins__, sorted(globals()))
print(type(__loader__), __cached__ if '__cached__' in globals() else '-')
print(sys.argv, sys.orig_argv, sys.path, sys.modules['__main__'].__dict__ is globals())
"""
_script("main", _MAIN, "a", "--b", "-c", "ü", "")
_command("main_command", _MAIN.replace("__file__, ", ""), "a", "-m")
_module("main_module", {"mod.py": _MAIN}, "mod", "x", "-y")
_module("main_package", {"pkg/__init__.py": "print('init', __name__)",
    "pkg/__main__.py": _MAIN.replace("__spec__", "__spec__.name")}, "pkg", "z")  # fmt: skip
_module("main_submodule", {"pkg/__init__.py": "", "pkg/sub.py": _MAIN}, "pkg.sub", "q")
_module("main_of_none", {}, "no_such_module")
_module("main_of_no_main", {"pkg/__init__.py": ""}, "pkg")
_module("main_of_broken_package", {"pkg/__init__.py": "1/0", "pkg/__main__.py": ""}, "pkg")
PROGRAMS["main_folder"] = Program(("folder", "w"), {"folder/__main__.py": _MAIN})
PROGRAMS["main_folder_without"] = Program(("folder",), {"folder/other.py": ""})
PROGRAMS["main_below"] = Program(("./a/b.py", "w"), {"a/b.py": _MAIN})
PROGRAMS["main_up"] = Program(("a/../script.py",), {"a/x": "", "script.py": _MAIN})
PROGRAMS["main_stdin"] = Program(("-", "x"), stdin=_MAIN.replace("__file__, ", ""))
PROGRAMS["main_no_words"] = Program((), stdin=_MAIN.replace("__file__, ", ""))
PROGRAMS["no_file"] = Program(("none.py", "x"))
PROGRAMS["not_readable_text"] = Program(("script.py",), {"script.py": "print('\0')\n"})
PROGRAMS["empty_command"] = Program(("-c", ""))
_script("imports_beside", "import beside; print(beside.x, beside.__file__)")
PROGRAMS["imports_beside"].files["beside.py"] = "x = 1\n"
_script("future", "from __future__ import annotations\ndef f(x: y): ...\nprint(f.__annotations__)")
_script("compiler_flags", "import sys; print(sys._getframe().f_code.co_flags, sys.flags)")
_script("coding", "# -*- coding: latin-1 -*-\nprint('é'.encode())")
_script("runs_itself", "import runpy, sys\nif __name__ == '__main__': runpy.run_path(__file__)\n"
    "else: print(__name__, sys.argv)")  # fmt: skip

# --- how it ends
_command("exit_0", "pass")
_command("exit_number", "import sys; sys.exit(7)")
_command("exit_large", "import sys; sys.exit(300)")
_command("exit_text", "import sys; sys.exit('a reason')")
_command("exit_object", "raise SystemExit((1, 2))")
_command("exit_none", "raise SystemExit")
_command("exit_at_once", "import os; print('lost', end=''); os._exit(5)")
_command("error", "def f():\n  return 1 / 0\nf()")
_script("error_in_script", "def f(n):\n    return f(n - 1) if n else [][1]\n\nf(3)\n")
_script(
    "error_chain", "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n"
)
_script("error_in_import", "import beside_broken\n")
PROGRAMS["error_in_import"].files["beside_broken.py"] = "x = 1\nraise OSError(2, 'no')\n"
_script("error_of_torch", "import torch\ntorch.empty(2) @ torch.empty(3)\n")
_script("syntax_error", "x = 1\nif x\n    y\n")
_command("syntax_error_command", "x = = 1")
PROGRAMS["syntax_error_stdin"] = Program(("-",), stdin="def f(:\n")
_script("group", "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\n")
_script("recursion", "import sys\nprint(sys.getrecursionlimit())\ndef f(n):\n    return"
    " n\nf(f(1))\n"
    "def g(): g()\ntry:\n    g()\nexcept RecursionError as e: print(e)")  # fmt: skip
_script("excepthook", "import sys\nsys.excepthook = lambda *e: print('hook', e[0])\n1/0")
_script("unraisable", "class A:\n    def __del__(self): raise ValueError('in del')\nA()\n")
_command("interrupt", "raise KeyboardInterrupt")
for _name in ("SIGTERM", "SIGKILL", "SIGINT", "SIGUSR1", "SIGABRT", "SIGSEGV", "SIGPIPE"):
    _command(f"killed_by_{_name}", "import os, signal, time\n"
        f"print('before', flush=True); os.kill(os.getpid(), signal.{_name}); time.sleep(0.1)"
        "\nprint('after')")  # fmt: skip
_command("atexit", "import atexit, sys\natexit.register(print, 'first')\n"
    "atexit.register(lambda: print('second', sys.argv))\nprint('body')")  # fmt: skip
_command("atexit_error", "import atexit\natexit.register(lambda: 1 / 0)")
_command("finalizers", "import sys\nclass A:\n  def __init__(self, n): self.n = n\n"
    "  def __del__(self): print('del', self.n, sys is not None)\n"
    "a, b = A(1), A(2)\nc = [A(3)]; c.append(c)\nprint('end')")  # fmt: skip
_script("unclosed_file", "f = open('out.txt', 'w')\nf.write('kept')\ndef g(): return f\n")
_command("thread_at_end", "import threading, time\n"
    "t = threading.Thread(target=lambda: (time.sleep(0.2), print('thread')))\nt.start()\n"
    "print(t.daemon, threading.main_thread().name)")  # fmt: skip
_command("daemon_thread", "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print('out')",
)  # fmt: skip
_command("closed_stdout", "import sys, os\nos.close(1)\nprint('x')")

# --- files and streams
_command("streams", "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr):\n"
    "  print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno(),"
    " s.isatty(), s.seekable(), s.buffer.raw.name, s.closed, type(s), type(s.buffer))\n"
    "print(sys.stdout is sys.__stdout__, repr(sys.stderr))")  # fmt: skip
_command("stdin_lines", "import sys\nprint(list(sys.stdin)); print(repr(input('more? ')))",
    stdin="a\r\nb\nc")  # fmt: skip
_command("stdin_bytes", "import sys; print(sys.stdin.buffer.read(3), sys.stdin.read())",
    stdin="abcdef")  # fmt: skip
_command("stdin_input", "print(input('name: '), input())", stdin="x\ny\n")
_command("buffering", "import sys, os\nprint('one'); os.write(1, b'two\\n'); print('three')")
_command("surrogates", "import sys; print(ascii(sys.argv))", "a\udcff")
_command("open_files", "import os\nprint(sorted(n for n in os.listdir('/proc/self/fd')"
    " if os.path.exists('/proc/self/fd/' + n)))")  # fmt: skip
_command("new_files", "import os\nfor i in range(3): print(os.open('/dev/null', 0))")
_script("writes", "import os, pathlib\npathlib.Path('a').mkdir()\nopen('a/b', 'w').write('x')\n"
    "os.open('c', os.O_CREAT, 0o666); print(oct(os.umask(0)), oct(os.stat('c').st_mode))",
)  # fmt: skip
_command("subprocess", "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c',"
    "'import sys, os; print(sys.argv, sorted(os.environ))'], capture_output=True))")  # fmt: skip
_command("subprocess_output", "import os, sys\nprint('a', flush=True); os.system('echo b;"
    " exit 3')\n"
    "print('c')")  # fmt: skip
_command("fork", "import os\npid = os.fork()\nif pid == 0: print('child'); os._exit(3)\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")  # fmt: skip
_command("wait_without_children", "import os\ntry: os.wait()\nexcept OSError as e: print(e)")
_command("exec", "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])")

# --- the process
_command("environment", "import os\nprint(dict(os.environ), os.environb[b'HOME'])\n"
    "print(open('/proc/self/environ', 'rb').read().rstrip(b'\\0').split(b'\\0'))")  # fmt: skip
_command("putenv", "import os, subprocess\nos.environ['NEW'] = 'x'; del os.environ['HOME']\n"
    "subprocess.run('echo $NEW; echo ${HOME-none}', shell=True)")  # fmt: skip
_command("command_line", "print(open('/proc/self/cmdline', 'rb').read())", "a b", "c")
_command("command_name", "print(open('/proc/self/comm').read())")
_command("directory", "import os; print(os.getcwd(), os.listdir())")
_command("identity", "import os\nprint(os.getuid(), os.getgroups(), os.getpriority(0, 0),"
    " os.sched_getaffinity(0), os.getpgid(0) != 0)")  # fmt: skip
_command("limits", "import resource as r\nprint([(n, r.getrlimit(getattr(r, n))) for n in dir(r)"
    " if n.startswith('RLIMIT')])")  # fmt: skip
_command("signals", "import signal\nprint([(s, signal.getsignal(s)) for s in"
    " sorted(signal.valid_signals())], signal.pthread_sigmask(0, []))\n"
    "print([l for l in open('/proc/self/status') if l.startswith(('SigB', 'SigI', 'SigP',"
    " 'Umask', 'Threads'))])")  # fmt: skip
_command("handlers", "import signal, os, time\n"
    "signal.signal(signal.SIGALRM, lambda n, f: print('alarm', n, f.f_code.co_name, f.f_back))\n"
    "signal.alarm(1); signal.pause()")  # fmt: skip
_command("threads", "import threading, os\nprint(threading.active_count(),"
    " len(os.listdir('/proc/self/task')), threading.get_native_id() == os.getpid(),"
    " threading.main_thread().native_id == os.getpid())")  # fmt: skip
_command("session", "import os; print(os.getsid(0) == os.getpid(), os.tcgetpgrp(0)"
    " if os.isatty(0) else None)")  # fmt: skip
_command("timers", "import signal, time\nprint(signal.getitimer(signal.ITIMER_REAL),"
    " time.process_time() < 5, time.tzname)")  # fmt: skip

# --- what can be seen of the interpreter
_command("frames", "import sys, traceback, inspect\nprint(sys._getframe().f_back,"
    " len(inspect.stack()))\ntraceback.print_stack()")  # fmt: skip
_script("frames_of_script", "import sys, traceback\ndef f(): traceback.print_stack()\nf()\n"
    "print(sys._getframe().f_back)")  # fmt: skip
_command("warns", "import warnings\nwarnings.warn('w', stacklevel=3)\n"
    "warnings.warn('d', DeprecationWarning)\nprint(warnings.filters[-1])")  # fmt: skip
_script("warns_in_script", "import warnings\nwarnings.warn('here')\n")
_command("faulthandler", "import faulthandler, os, signal\nfaulthandler.enable()\n"
    "print(faulthandler.is_enabled()); os.kill(os.getpid(), signal.SIGABRT)")  # fmt: skip
_script("dump", "import faulthandler\nfaulthandler.dump_traceback()\n")
_script("pdb", "x = 1\nbreakpoint()\nprint('after', x)\n", stdin="p x\nw\nx = 5\nc\n")
_script("pdb_quit", "x = 1\nbreakpoint()\nprint('after', x)\n", stdin="q\n")
PROGRAMS["pdb_module"] = Program(("-m", "pdb", "script.py"), {"script.py": "y = 2\nprint(y)\n"},
    "n\np y\nn\nc\nq\n")  # fmt: skip
_script("settrace", "import sys\nseen = []\nsys.settrace(lambda f, e, a:"
    " seen.append((f.f_code.co_name,"
    " e)))\ndef f(): pass\nf(); sys.settrace(None)\nprint(seen)")  # fmt: skip
_module("trace_module", {"script.py": "a = 1\nb = 2\nprint(a + b)\n"},
    "trace", "--count", "--missing", "-C", "out", "script.py")  # fmt: skip
_module("profile_module", {"script.py": "def f(): pass\nf()\nprint('x')\n"},
    "cProfile", "-o", "/dev/null", "script.py")  # fmt: skip
_module("unittest_module", {"test_x.py": "import unittest\nclass T(unittest.TestCase):\n"
    "  def test_a(self): self.assertEqual(1, 1)\n"}, "unittest", "-q", "nothing_here")  # fmt: skip
_command("modules_of_ours", "import sys\nprint([n for n in sys.modules if 'warmcc' in"
    " n.split('.')],"
    " [n for n in sys.modules if n.endswith('customize')], [p for p in sys.path if"
    " 'at_start' in p],"
    " sys.meta_path, sys.path_hooks)")  # fmt: skip
_command("names", "import sys\nprint(sys.executable, sys.prefix, sys.version, sys.implementation,"
    " sys.getfilesystemencoding(), sys.warnoptions, sys._xoptions, sys.dont_write_bytecode)",
)  # fmt: skip
_command("path", "import sys, site; print(sys.path, site.ENABLE_USER_SITE, sys.path_hooks)")
_command("hooks", "import sys\nprint(sys.displayhook, sys.excepthook, sys.gettrace(),"
    " sys.getprofile(), sys.breakpointhook, sys.unraisablehook)")  # fmt: skip
_command("collector", "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug(),"
    " gc.callbacks)")  # fmt: skip
_command("hash_seed", "print(sorted({hash(str(n)) == hash(str(n)) for n in range(9)}))")
_command("logging", "import logging\nlogging.warning('x'); print(logging.root.handlers)\n"
    "logging.basicConfig(format='f %(message)s', force=True)\n"
    "logging.error('y')")  # fmt: skip
_command("locale", "import locale, time\nprint(locale.getlocale(), locale.setlocale(locale.LC_ALL),"
    " time.strftime('%Z'))")  # fmt: skip
PROGRAMS["imports_local"] = Program(("-m", "mod"), {"mod.py": "import own\nprint(own)\n",
    "own.py": ""})  # fmt: skip

# --- libraries
_command("torch", "import torch\nprint(torch.__version__, torch.get_num_threads(),"
    " torch.get_num_interop_threads(), torch.get_default_dtype(), torch.is_grad_enabled())\n"
    "print(torch.cuda.is_initialized(), torch.__config__.parallel_info())")  # fmt: skip
_command("torch_threads", "import torch, os\nx = torch.ones(2000, 2000); print((x @ x).sum())\n"
    "print(len(os.listdir('/proc/self/task')) > 1 or os.cpu_count() == 1)")  # fmt: skip
_command("torch_backward", "import torch\nx = torch.ones(3, requires_grad=True)\n"
    "(x * 2).sum().backward(); print(x.grad)")  # fmt: skip
_command("torch_save", "import torch, io\nb = io.BytesIO(); torch.save({'a': torch.ones(2)}, b)\n"
    "b.seek(0); print(torch.load(b))")  # fmt: skip
_command("numpy_threads", "import numpy as np, os\nx = np.ones((1500, 1500)); print((x @"
    " x).sum())\n"
    "print(len(os.listdir('/proc/self/task')))")  # fmt: skip
_command("seeded", "import random, torch\nrandom.seed(1); torch.manual_seed(2)\n"
    "print(random.random(), torch.rand(2))")  # fmt: skip
_script("spawn", "import multiprocessing as mp, sys, os\ndef f(x): return x * x, __name__\n"
    "if __name__ == '__main__':\n    mp.set_start_method(sys.argv[1])\n"
    "    with mp.Pool(2) as p: print(p.map(f, range(3)))\n", "spawn")  # fmt: skip
PROGRAMS["pool_fork"] = Program(("script.py", "fork"), PROGRAMS["spawn"].files)
PROGRAMS["pool_forkserver"] = Program(("script.py", "forkserver"), PROGRAMS["spawn"].files)
_script("loader", "import torch\nfrom torch.utils.data import DataLoader\n"
    "if __name__ == '__main__':\n"
    "    print([b.tolist() for b in DataLoader(list(range(6)), batch_size=2, num_workers=2)])\n",
)  # fmt: skip
_script("executor", "from concurrent.futures import ProcessPoolExecutor\ndef f(x): return x + 1\n"
    "if __name__ == '__main__':\n"
    "    with ProcessPoolExecutor(2) as e: print(list(e.map(f, [1, 2])))\n")  # fmt: skip
_command("asyncio", "import asyncio\nasync def f():\n"
    "  p = await asyncio.create_subprocess_shell('exit 4'); print(await p.wait())\n"
    "asyncio.run(f())")  # fmt: skip
_command(
    "reader_of_maps", "import torch, sys\nprint('libtorch_cpu' in open('/proc/self/maps').read())"
)
