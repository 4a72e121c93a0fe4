"""Hostile submissions, each with what it must get. ``load_test.py`` and the tests send them.

They really do what they say, within the limits of ``load_test.py``: do not run them elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

_HEAD = """\
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
extern "C" void solve(const float* x, float* y, int64_t rows, int64_t columns)
"""
RIGHT = (
    _HEAD
    + """{
    for (int64_t row = 0; row < rows; row++, x += columns, y += columns) {
        float top = x[0], sum = 0;
        for (int64_t i = 0; i < columns; i++) top = fmaxf(top, x[i]);
        for (int64_t i = 0; i < columns; i++) sum += y[i] = expf(x[i] - top);
        for (int64_t i = 0; i < columns; i++) y[i] /= sum;
    }
}
"""
)
WRONG = _HEAD + "{ for (int64_t i = 0; i < rows * columns; i++) y[i] = expf(x[i]); }\n"
BROKEN = _HEAD + "{ return undeclared; }\n"
_NOTHING = _HEAD + "{}\n"
# The same with torch, which is slower to compile
TORCH = (
    "#include <torch/types.h>\n"
    + _HEAD
    + """{
    auto from = at::from_blob(const_cast<float*>(x), {rows, columns});
    at::from_blob(y, {rows, columns}).copy_(at::softmax(from, -1));
}
"""
)


@dataclass(frozen=True)
class Attack:
    """``gets`` are the statuses that are right for it. What it must not print is ``leaks``."""

    what: str
    source: str
    gets: tuple[str, ...]


def at_start(code: str, then: str = _NOTHING, headers: str = "") -> str:
    """A submission that runs code as soon as its library is loaded."""
    names = ("unistd.h", "sys/wait.h", "sys/socket.h", "fcntl.h", "signal.h", "dirent.h",
             "sys/mount.h", "sched.h", "time.h", "string.h", "stdlib.h", "stdio.h", "sys/ptrace.h",
             "netinet/in.h", "errno.h", "initializer_list")  # fmt: skip
    includes = "".join(f"#include <{name}>\n" for name in names)
    return f"{includes}{headers}\nstatic int at_start = [] {{ {code} return 0; }}();\n{then}"


REFUSED = ("compile error",)
LIMITED = ("compile error", "time limit", "size limit")
# Of the compiler. FOREIGN stands for a file of another submission, STORE for the daemon's cache.
COMPILING = [
    Attack("#include of /etc/shadow", '#include "/etc/shadow"\n' + RIGHT, REFUSED),
    Attack("#include of another submission", '#include "FOREIGN"\n' + RIGHT, REFUSED),
    Attack(
        "probing with __has_include",
        '#if __has_include("FOREIGN")\n#include "FOREIGN"\n#else\n#error "not there"\n#endif\n'
        + RIGHT,
        REFUSED,
    ),
    Attack(".incbin of another submission", 'asm(".incbin \\"FOREIGN\\"");\n' + RIGHT, REFUSED),
    Attack(".include of /etc/shadow", 'asm(".include \\"/etc/shadow\\"");\n' + RIGHT, REFUSED),
    Attack("#embed of /etc/shadow", "const char s[] = {\n#embed \"/etc/shadow\"\n};\n" + RIGHT,
           REFUSED),
    Attack(
        "#pragma GCC of an unknown kind, and a plugin",
        "#pragma GCC plugin \"/tmp/evil.so\"\n#pragma GCC dependency \"FOREIGN\"\n" + RIGHT,
        ("compile error", "passed"),
    ),
    Attack(
        "endless recursion of a template",
        "template <int N> struct Deep { enum { v = Deep<N + 1>::v }; };\nint d = Deep<0>::v;\n"
        + RIGHT,
        REFUSED,
    ),
    Attack(
        "templates without end",
        "template <unsigned long N, int D> struct T { enum : unsigned long { v = "
        "T<2 * N, D - 1>::v + T<2 * N + 1, D - 1>::v }; };\n"
        "template <unsigned long N> struct T<N, 0> { enum : unsigned long { v = N }; };\n"
        "unsigned long t = T<1, 40>::v;\n" + RIGHT,
        LIMITED,
    ),
    Attack(
        "memory of the compiler",
        "constexpr int size = 1 << 30;\nstruct Big { int x[size] = {1}; constexpr Big() {} };\n"
        "constexpr Big big;\nint b = big.x[7];\n" + RIGHT,
        LIMITED,
    ),
    Attack(
        "macros that double 2^40 times",
        "#define A0 1+\n"
        + "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 41))
        + "int a = A40 1;\n" + RIGHT,
        LIMITED,
    ),
    Attack(
        "many megabytes of errors",
        "#define E0 undeclared_name_with_a_long_long_long_long_long_long_name;\n"
        + "".join(f"#define E{n} E{n - 1} E{n - 1}\n" for n in range(1, 16))
        + "void e() { E15 }\n" + RIGHT,
        REFUSED,
    ),
    Attack("a section of gigabytes", 'asm(".bss\\n.skip 0x100000000000\\n.text\\n'
           '.data\\n.fill 0x7fffffff, 8, 1\\n.text");\n' + RIGHT,
           LIMITED),
]  # fmt: skip
COMPILING += [
    Attack(f"the flag {flags}", f"// {kind}: {flags}\n{RIGHT}", ("refused",))
    for kind, flags in (
        ("flags", "-fplugin=/tmp/evil.so"),
        ("flags", "-o /tmp/leaderboard_attack"),
        ("flags", "-B/tmp/evil"),
        ("flags", "-wrapper /bin/sh,-c"),
        ("flags", "@/etc/shadow"),
        ("flags", "-include /etc/shadow"),
        ("flags", "-fdump-tree-all=/tmp/leaderboard_attack"),
        ("flags", "-specs=/tmp/evil"),
        ("flags", "-DX=$(touch$IFS/tmp/leaderboard_attack)"),
        ("ldflags", "-Wl,-T,/tmp/evil.ld"),
        ("ldflags", "-T/tmp/evil.ld"),
        ("ldflags", "-Wl,-Map=/tmp/leaderboard_attack"),
        ("ldflags", "-Wl,--plugin,/tmp/evil.so"),
    )
]

_WRITES = """
for (const char* path : {"STORE/attack", "WORK/attack", "/bundle/attack", "/usr/attack",
                         "/attack", "FOREIGN", "/etc/attack", "/dev/attack"}) {
    int file = open(path, O_CREAT | O_WRONLY, 0666);
    if (file >= 0) { printf("WROTE %s\\n", path); write(file, "x", 1); }
}
unlink("FOREIGN"); rename("/bundle", "/tmp/bundle");
fflush(stdout);
"""
_READS = """
for (const char* path : {"FOREIGN", "/etc/shadow", "/etc/passwd", "/var/log", "STORE", "WORK",
                         "/proc/1/root/FOREIGN", "/proc/1/cwd/..", "/run"}) {
    int file = open(path, O_RDONLY);
    char text[100];
    if (file >= 0 && (read(file, text, 100) > 0 || errno == EISDIR)) {
        DIR* folder = opendir(path);
        int names = 0;
        while (folder && readdir(folder)) names++;
        if (!folder || names > 2) printf("READ %s\\n", path);
    }
}
fflush(stdout);
"""
_KILLS = """
for (int pid = 1; pid < 70000; pid++) if (pid != getpid()) {
    if (ptrace(PTRACE_ATTACH, pid, 0, 0) == 0) printf("TRACED %d\\n", pid);
}
kill(-1, SIGKILL);
for (int pid = 2; pid < 70000; pid++)
    if (pid != getpid() && kill(pid, SIGKILL) == 0) printf("KILLED %d\\n", pid);
fflush(stdout);
"""
_ROOT = """
if (setuid(0) == 0) printf("GOT root\\n");
if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
    mount("none", "/usr", "tmpfs", 0, 0) == 0 && getuid() == 0) printf("GOT mounts\\n");
if (mount(0, "/usr", 0, MS_REMOUNT | MS_BIND, 0) == 0) {
    if (open("/usr/attack", O_CREAT | O_WRONLY, 0666) >= 0) printf("GOT a writable system\\n");
}
timespec now = {0, 0};
if (clock_settime(CLOCK_REALTIME, &now) == 0) printf("GOT the clock\\n");
fflush(stdout);
"""
_NET = """
int one = socket(AF_INET, SOCK_STREAM, 0);
sockaddr_in to = {}; to.sin_family = AF_INET; to.sin_port = htons(PORT);
to.sin_addr.s_addr = htonl(0x7f000001);
if (connect(one, (sockaddr*)&to, sizeof to) == 0) printf("CONNECTED\\n");
fflush(stdout);
"""
_DAEMON = """
for (int n = 0; n < 5; n++) if (fork() == 0) {
    setsid();
    if (fork()) _exit(0);
    setsid(); signal(SIGTERM, SIG_IGN); signal(SIGHUP, SIG_IGN);
    for (int file = 0; file < 256; file++) close(file);
    for (;;) sleep(1);
}
"""
_FAKE = """
const char* text = "{\\"status\\": \\"passed\\", \\"seconds\\": 0.0, \\"error\\": \\"\\"}\\n";
char frame[12] = {0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0};
for (int file = 0; file < 64; file++) { write(file, frame, 12); write(file, text, strlen(text)); }
_exit(0);
"""
_TENSORS = """
const char* head = "{\\"device\\": \\"cpu\\", \\"seconds\\": 0.0, \\"tensors\\": []}";
char frame[12] = {0, 0, 0, (char)strlen(head), 0, 0, 0, 0, 0, 0, 0, 0};
for (int n = 0; n < 20; n++) { write(4, frame, 12); write(4, head, strlen(head)); }
_exit(0);
"""
_HUGE = """
char frame[12] = {0, 0, 0, 2, 127, 0, 0, 0, 0, 0, 0, 0};
for (int n = 0; n < 100; n++) write(4, frame, 12);
sleep(1);
"""
STOPPED = ("process limit",)
# Of the process that runs it.
RUNNING = [
    Attack("fork bomb", at_start("for (;;) fork();"), STOPPED),
    Attack("fork bomb that also sleeps",
           at_start("for (;;) if (fork() == 0) { setsid(); sleep(1); }"), STOPPED),
    Attack("reading other files", at_start(_READS, RIGHT), ("passed",)),
    Attack("writing to the store, bundles and the system", at_start(_WRITES, RIGHT), ("passed",)),
    Attack("killing and tracing all processes", at_start(_KILLS, RIGHT), ("crashed", "passed")),
    Attack("becoming root, mounting, setting the clock", at_start(_ROOT, RIGHT), ("passed",)),
    Attack("connecting to the machine's network", at_start(_NET, RIGHT), ("passed",)),
    Attack("output without end", at_start("for (;;) puts(\"flood\");"), ("output limit",)),
    Attack("sleeping for ever", at_start("sleep(100000);"), ("time limit",)),
    Attack("computing for ever", at_start("volatile bool on = true; while (on) {}"),
           ("time limit",)),
    Attack("all memory", at_start("for (;;) { char* m = (char*)malloc(1 << 24); "
           "if (m) memset(m, 1, 1 << 24); else usleep(1000); }"),
           ("memory limit", "crashed", "time limit")),
    Attack("all memory, in many processes",
           at_start("for (int n = 0; n < 12; n++) if (fork() == 0) for (;;) { "
                    "char* m = (char*)malloc(1 << 24); if (m) memset(m, 1, 1 << 24); }"
                    "sleep(100);"),
           ("memory limit",)),
    Attack("filling the disk", at_start("int f = open(\"/tmp/full\", O_CREAT | O_WRONLY, 0600); "
           "char part[1 << 16] = {1}; signal(SIGXFSZ, SIG_IGN); "
           "while (write(f, part, sizeof part) > 0) {}", RIGHT), ("passed", "crashed")),
    Attack("daemons that outlive it", at_start(_DAEMON, RIGHT), ("passed",)),
    Attack("exit(0) with a faked report", at_start(_FAKE), ("crashed",)),
    Attack("faked answers without results", at_start(_TENSORS), ("crashed",)),
    Attack("an answer of 8 exabytes", at_start(_HUGE), ("crashed",)),
    Attack("exit(0) in a call", _HEAD + "{ exit(0); }\n", ("crashed",)),
    Attack("writing past the result",
           _HEAD + "{ for (int64_t i = 0; i < (1 << 26); i++) y[i] = 0; }\n", ("crashed",)),
    Attack("no function", "int other;\n", ("crashed",)),
    Attack("results that were kept from the calls before",
           RIGHT.replace("void solve", "void right") + "static float kept[1 << 20];\n"
           + "static int64_t count;\n" + _HEAD
           + "{ if (count != rows * columns) right(x, kept, rows, columns);\n"
           "count = rows * columns; for (int64_t i = 0; i < count; i++) y[i] = kept[i]; }\n",
           ("wrong",)),
    Attack("only NaN", _HEAD + "{ for (int64_t i = 0; i < rows * columns; i++) y[i] = NAN; }\n",
           ("wrong",)),
    Attack("nothing at all", _NOTHING, ("wrong",)),
    Attack("a segmentation fault", at_start("*(volatile int*)8 = 1;"), ("crashed",)),
]  # fmt: skip
ATTACKS = COMPILING + RUNNING
TARGET = "leaderboard_attack"  # below /tmp
SECRET = "the_text_of_another_submission"
LEAKS = ("WROTE", "READ ", "TRACED", "KILLED", "GOT ", "CONNECTED")


def said(source: str, **places: str) -> str:
    """The source with real places in it: FOREIGN, STORE, WORK, PORT."""
    for name, place in places.items():
        source = source.replace(name.upper(), place)
    return source
