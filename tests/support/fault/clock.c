/* Preloaded into the daemon: the clock of the wall, and the dates of its markers, stand off by some seconds.
 *
 * A test maps the same control file and writes the seconds. Setting them back is what setting back the clock is to a
 * build: its marker was dated by the old clock, and what is written later is dated by the new one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile long* shift;

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("CLOCK_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void* map = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    shift = map == MAP_FAILED ? 0 : map;
    unsetenv("LD_PRELOAD"); /* compilers date their files as ever */
}

int clock_gettime(clockid_t clock, struct timespec* now) {
    int result = ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (shift && clock == CLOCK_REALTIME && result == 0) now->tv_sec += *shift;
    return result;
}

static int is_marker(int fd) {
    char link[64], target[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, target, sizeof target - 1);
    if (size < 0) return 0;
    target[size] = 0;
    return strstr(target, "/.marker-") != 0;
}

int fstat(int fd, struct stat* found) {
    int result = ((__typeof__(&fstat))dlsym(RTLD_NEXT, "fstat"))(fd, found);
    if (shift && *shift && result == 0 && is_marker(fd)) found->st_ctim.tv_sec += *shift;
    return result;
}
int fstat64(int fd, struct stat64* found) {
    int result = ((__typeof__(&fstat64))dlsym(RTLD_NEXT, "fstat64"))(fd, found);
    if (shift && *shift && result == 0 && is_marker(fd)) found->st_ctim.tv_sec += *shift;
    return result;
}
