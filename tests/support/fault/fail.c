/* Preloaded into a fork server: makes the N-th call of one function fail, once, in whichever of its processes makes it.
 *
 * A test maps the same control file: it writes which function (its place in the list below), the errno and N (`left`),
 * and reads how often the function was called.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORK = 1, ACCEPT, POLL, RECV, SEND, WAIT, PIDFD, CHDIR, DUP, GETRLIMIT, SETRLIMIT, PRCTL };
struct control {
  long function, error, left, calls;
};
static struct control* control;

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("FAIL_CONTROL");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  control = found == MAP_FAILED ? NULL : found;
  close(file);
}

static int fails(int function) {
  if (!control || control->function != function) return 0;
  __atomic_add_fetch(&control->calls, 1, __ATOMIC_SEQ_CST);
  if (__atomic_sub_fetch(&control->left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
  errno = control->error;
  return 1;
}

#define WRAP(kind, result, name, parameters, arguments)             \
  result name parameters {                                          \
    if (fails(kind)) return -1;                                     \
    return ((result(*) parameters)dlsym(RTLD_NEXT, #name))arguments; \
  }
WRAP(FORK, pid_t, fork, (void), ())
WRAP(ACCEPT, int, accept4, (int a, struct sockaddr* b, socklen_t* c, int d), (a, b, c, d))
WRAP(POLL, int, poll, (struct pollfd * a, nfds_t b, int c), (a, b, c))
WRAP(RECV, ssize_t, recv, (int a, void* b, size_t c, int d), (a, b, c, d))
WRAP(SEND, ssize_t, send, (int a, const void* b, size_t c, int d), (a, b, c, d))
WRAP(WAIT, pid_t, wait4, (pid_t a, int* b, int c, struct rusage* d), (a, b, c, d))
WRAP(CHDIR, int, chdir, (const char* a), (a))
WRAP(DUP, int, dup2, (int a, int b), (a, b))
WRAP(GETRLIMIT, int, getrlimit, (__rlimit_resource_t a, struct rlimit* b), (a, b))
WRAP(SETRLIMIT, int, setrlimit, (__rlimit_resource_t a, const struct rlimit* b), (a, b))
WRAP(PRCTL, int, prctl, (int a, long b, long c, long d, long e), (a, b, c, d, e))

long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long), d = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_pidfd_open && fails(PIDFD)) return -1;
  return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a, b, c, d);
}
