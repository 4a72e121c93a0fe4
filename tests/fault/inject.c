/* Preloaded into the daemon: makes the N-th call of one kind fail, on files below one folder.
 *
 * A test maps the same control file: it writes the kind, the errno and N (`left`), and reads how often a call was made
 * (`calls`) and failed (`failed`). N counts down to the call that fails; 0 and below: none does. `shift` moves the clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { WRITE = 1, FSYNC = 2, RENAME = 3, OPEN = 4 };
struct control {
    int kind, error;
    long left, calls, failed, shift;
};
static struct control* control;
static char folder[4096];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("INJECT_CONTROL"), *below = getenv("INJECT_BELOW");
    if (!path || !below) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void* map = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    snprintf(folder, sizeof folder, "%s", below);
    control = map == MAP_FAILED ? 0 : map;
    unsetenv("LD_PRELOAD"); /* what the daemon starts is not the subject */
}

static int fails(enum kind kind) {
    if (!control || control->kind != (int)kind) return 0;
    __atomic_add_fetch(&control->calls, 1, __ATOMIC_SEQ_CST);
    if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = control->error;
    return 1;
}

static int below(const char* path) { return control && path && strncmp(path, folder, strlen(folder)) == 0; }

static int fd_below(int fd) {
    char link[64], target[4096];
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    if (size < 0) return 0;
    target[size] = 0;
    return below(target);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The clock of the wall stands `shift` seconds off. */
int clock_gettime(clockid_t clock, struct timespec* now) {
    int result = REAL(clock_gettime)(clock, now);
    if (control && clock == CLOCK_REALTIME && result == 0) now->tv_sec += control->shift;
    return result;
}

ssize_t write(int fd, const void* data, size_t size) {
    return fd_below(fd) && fails(WRITE) ? -1 : REAL(write)(fd, data, size);
}
ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* to, size_t size, unsigned flags) {
    return fd_below(out) && fails(WRITE) ? -1 : REAL(copy_file_range)(in, from, out, to, size, flags);
}
ssize_t sendfile(int out, int in, off_t* from, size_t size) {
    extern ssize_t sendfile(int, int, off_t*, size_t);
    return fd_below(out) && fails(WRITE) ? -1 : REAL(sendfile)(out, in, from, size);
}
int fsync(int fd) { return fd_below(fd) && fails(FSYNC) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fd_below(fd) && fails(FSYNC) ? -1 : REAL(fdatasync)(fd); }
int rename(const char* from, const char* to) { return below(to) && fails(RENAME) ? -1 : REAL(rename)(from, to); }
int renameat(int a, const char* from, int b, const char* to) {
    return below(to) && fails(RENAME) ? -1 : REAL(renameat)(a, from, b, to);
}

static int opened(int (*real)(const char*, int, ...), const char* path, int flags, mode_t mode) {
    return below(path) && fails(OPEN) ? -1 : real(path, flags, mode);
}
#define MODE                                   \
    mode_t mode = 0;                           \
    if (flags & (O_CREAT | O_TMPFILE)) {       \
        va_list rest;                          \
        va_start(rest, flags);                 \
        mode = va_arg(rest, mode_t);           \
        va_end(rest);                          \
    }
int open(const char* path, int flags, ...) {
    MODE return opened((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open"), path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    MODE return opened((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open64"), path, flags, mode);
}
