/* Preloaded into a process: calls of chosen kinds fail, the N-th one or each with some probability.
 *
 * A test maps the same control block (injecting.py has its layout): it sets which kinds may fail, with which errors, and
 * either `left` (counts down to the one call that fails) or `chance` (of a million calls, this many fail; which ones
 * follows from `seed` alone). `calls` and `failed` count by kind. What is about files looks only at those below a folder.
 * `shift` moves the clock of the wall by seconds. A signal to a process id below 1 (to a whole group, or to everybody) is
 * not sent, and counted in `strays`: whatever else goes wrong, the machine that runs the tests survives it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind {
    WRITE, FSYNC, RENAME, OPEN, READ, MKDIR, UNLINK, MMAP, FORK, EXEC, THREAD, PIPE,
    ACCEPT, CONNECT, RECEIVE, SEND, CHDIR, DUP, PIDFD, KINDS
};
enum { ERRORS = 4 }; /* that a call of one kind may fail with; 0 ends the list */
struct control {
    long left, chance, seed, kinds, shift, strays;
    long errors[KINDS][ERRORS], calls[KINDS], failed[KINDS];
};
static struct control* control;
static char folder[4096];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("INJECT_CONTROL"), *below = getenv("INJECT_BELOW");
    const char* program = getenv("INJECT_PROGRAM"); /* a shell that starts the program may be in front of it */
    if (!path || !below || (program && strcmp(program, program_invocation_short_name) != 0)) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void* map = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    snprintf(folder, sizeof folder, "%s", below);
    unsetenv("LD_PRELOAD"); /* what this process starts is not the subject */
    control = map == MAP_FAILED ? 0 : map;
}

/* Numbers that look random and are the same for the same arguments (splitmix64). */
static unsigned long mixed(unsigned long seed, unsigned long kind, unsigned long number) {
    unsigned long x = seed * 0x9e3779b97f4a7c15 + kind * 0xd1b54a32d192ed03 + number * 0x8cb92ba72f3d8dd7;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The error with which a call fails; 0 for one that is made. */
static int error_of(enum kind kind) {
    if (!control || !(control->kinds >> kind & 1)) return 0;
    long number = __atomic_add_fetch(&control->calls[kind], 1, __ATOMIC_SEQ_CST), which = 0;
    if (control->chance) {
        unsigned long random = mixed(control->seed, kind, number);
        if ((long)(random % 1000000) >= control->chance) return 0;
        which = random >> 40;
    } else if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) {
        return 0;
    }
    long count = 0;
    while (count < ERRORS && control->errors[kind][count]) ++count;
    if (!count) return 0;
    __atomic_add_fetch(&control->failed[kind], 1, __ATOMIC_SEQ_CST);
    return control->errors[kind][which % count];
}

static int fails(enum kind kind) {
    int error = error_of(kind);
    if (error) errno = error;
    return error;
}

static int below(const char* path) { return control && path && strncmp(path, folder, strlen(folder)) == 0; }

static int fd_below(int fd) {
    char link[64], target[4096];
    if (!control || !control->kinds) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    errno = before;
    if (size < 0) return 0;
    target[size] = 0;
    return below(target);
}

static int at_below(int fd, const char* path) {
    return path && (path[0] == '/' ? below(path) : fd != AT_FDCWD && fd_below(fd));
}

/* Found when the library is loaded: to look for it in a child that was just forked could wait for a lock without end. */
#define FOUND(name) \
    static __typeof__(&name) real_##name; \
    __attribute__((constructor)) static void find_##name(void) { *(void**)&real_##name = dlsym(RTLD_NEXT, #name); }
#define REAL(name) (real_##name ? real_##name : (find_##name(), real_##name))
/* A call that fails with -1, or is made. */
#define WRAP(kind, met, type, name, parameters, ...) \
    FOUND(name) \
    type name parameters { return (met) && fails(kind) ? (type)-1 : REAL(name)(__VA_ARGS__); }

WRAP(WRITE, fd_below(fd), ssize_t, write, (int fd, const void* data, size_t size), fd, data, size)
WRAP(WRITE, fd_below(out), ssize_t, copy_file_range,
     (int in, off64_t* from, int out, off64_t* to, size_t size, unsigned flags), in, from, out, to, size, flags)
WRAP(WRITE, fd_below(out), ssize_t, sendfile, (int out, int in, off_t* from, size_t size), out, in, from, size)
WRAP(WRITE, fd_below(out), ssize_t, sendfile64, (int out, int in, off64_t* from, size_t size), out, in, from, size)
WRAP(FSYNC, fd_below(fd), int, fsync, (int fd), fd)
WRAP(FSYNC, fd_below(fd), int, fdatasync, (int fd), fd)
WRAP(RENAME, below(to), int, rename, (const char* from, const char* to), from, to)
WRAP(RENAME, at_below(b, to), int, renameat, (int a, const char* from, int b, const char* to), a, from, b, to)
WRAP(READ, fd_below(fd), ssize_t, read, (int fd, void* data, size_t size), fd, data, size)
WRAP(READ, fd_below(fd), ssize_t, pread, (int fd, void* data, size_t size, off_t at), fd, data, size, at)
WRAP(MKDIR, below(path), int, mkdir, (const char* path, mode_t mode), path, mode)
WRAP(MKDIR, at_below(fd, path), int, mkdirat, (int fd, const char* path, mode_t mode), fd, path, mode)
WRAP(UNLINK, below(path), int, unlink, (const char* path), path)
WRAP(UNLINK, below(path), int, rmdir, (const char* path), path)
WRAP(UNLINK, at_below(fd, path), int, unlinkat, (int fd, const char* path, int flags), fd, path, flags)
WRAP(EXEC, 1, int, execve, (const char* path, char* const argv[], char* const environment[]), path, argv, environment)
WRAP(PIPE, 1, int, pipe, (int ends[2]), ends)
WRAP(PIPE, 1, int, pipe2, (int ends[2], int flags), ends, flags)
WRAP(PIPE, 1, int, socketpair, (int domain, int type, int protocol, int ends[2]), domain, type, protocol, ends)
WRAP(ACCEPT, 1, int, accept, (int fd, struct sockaddr* peer, socklen_t* size), fd, peer, size)
WRAP(ACCEPT, 1, int, accept4, (int fd, struct sockaddr* peer, socklen_t* size, int flags), fd, peer, size, flags)
WRAP(CONNECT, 1, int, socket, (int domain, int type, int protocol), domain, type, protocol)
WRAP(CONNECT, 1, int, connect, (int fd, const struct sockaddr* peer, socklen_t size), fd, peer, size)
WRAP(RECEIVE, 1, ssize_t, recv, (int fd, void* data, size_t size, int flags), fd, data, size, flags)
WRAP(SEND, 1, ssize_t, send, (int fd, const void* data, size_t size, int flags), fd, data, size, flags)
WRAP(CHDIR, 1, int, chdir, (const char* path), path)
WRAP(DUP, 1, int, dup2, (int from, int to), from, to)

/* Those that say it in another way, or are made in another. */
static __thread int no_vfork;
FOUND(fork)
pid_t fork(void) {
    if (no_vfork ? (errno = no_vfork, no_vfork = 0, 1) : fails(FORK)) return -1;
    return REAL(fork)();
}
/* A function that calls vfork may not return in the child: fork does as well. Python tries fork after a vfork that
 * failed; that is the same fault. */
pid_t vfork(void) { return (no_vfork = fails(FORK)) ? -1 : REAL(fork)(); }
FOUND(mmap)
void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) {
    return fails(MMAP) ? MAP_FAILED : REAL(mmap)(at, size, access, flags, fd, offset);
}
FOUND(pthread_create)
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
    int error = error_of(THREAD);
    return error ? error : REAL(pthread_create)(thread, attributes, run, argument);
}
FOUND(opendir)
DIR* opendir(const char* path) { return below(path) && fails(OPEN) ? 0 : REAL(opendir)(path); }

#define MODE(flags)                            \
    mode_t mode = 0;                           \
    if (flags & (O_CREAT | O_TMPFILE)) {       \
        va_list rest;                          \
        va_start(rest, flags);                 \
        mode = va_arg(rest, mode_t);           \
        va_end(rest);                          \
    }
#define OPENS(name) \
    FOUND(name) \
    int name(const char* path, int flags, ...) { \
        MODE(flags) return below(path) && fails(OPEN) ? -1 : REAL(name)(path, flags, mode); \
    }
#define OPENS_AT(name) \
    FOUND(name) \
    int name(int fd, const char* path, int flags, ...) { \
        MODE(flags) return at_below(fd, path) && fails(OPEN) ? -1 : REAL(name)(fd, path, flags, mode); \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

FOUND(syscall)
long syscall(long number, ...) {
    long words[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) words[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_pidfd_open && fails(PIDFD)) return -1;
    return REAL(syscall)(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

FOUND(kill)
int kill(pid_t pid, int signal) {
    if (pid >= 1 || !control) return REAL(kill)(pid, signal);
    __atomic_add_fetch(&control->strays, 1, __ATOMIC_SEQ_CST);
    errno = EPERM;
    return -1;
}

FOUND(clock_gettime)
int clock_gettime(clockid_t clock, struct timespec* now) {
    int result = REAL(clock_gettime)(clock, now);
    if (control && clock == CLOCK_REALTIME && result == 0) now->tv_sec += control->shift;
    return result;
}
