// Preloaded into a compiler front end, it turns the process into a fork server: stopped at the moment when it opens the
// unit's own file, with the whole prelude read, it forks once per request.
//
//   WARMCC_STOP      the name under which the front end opens the unit's file
//   WARMCC_LISTENER  the descriptor of a Unix socket of type SEQPACKET that listens, on which the requests come
//   WARMCC_LIFE      the descriptor of a socket that is connected to the daemon: the server says there that it has
//                    stopped, and ends when the daemon has gone
//   WARMCC_OUTPUT    a file that the front end opened for writing before the stop; each child writes one of that name
//                    in its own folder instead (cc1plus opens its output first, the others last)
//   WARMCC_HUGE      set where each child first copies its heap into huge pages
//   WARMCC_CPU       seconds of processor time that a child may use; WARMCC_MEMORY its address space in bytes
//   WARMCC_CONFINE   rules (confine.h) for each child, on top of what the server is confined to; it reads nothing of
//                    its unit before they hold
//
// A request is the path of a folder. Its child changes there, writes what it prints into `log`, and goes on: relative
// names on the command line land in the folder. A middleman waits for the child and answers "STATUS MICROSECONDS"
// (as of wait4, with the processor time), or kills it when the client hangs up.
// With "+" the child is forked ahead of need: it has its memory copied, answers "+", and waits for the path.
// "-ERRNO" is the answer when no child could be made or watched; the server serves on.
//
// Everything ends with the daemon, however that ends: the front end while it reads the prelude and the middlemen by the
// kernel's hand (PDEATHSIG), the server by its life line, and each child with its middleman.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "confine.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define AHEAD "+"
#define READY "!"

enum { FAILED_TO_SERVE = 99 };
enum { HUGE_PAGE = 2 << 20, WORTH_MICROSECONDS = 2500, GRACE_MICROSECONDS = 50000, SHORTAGE_MILLISECONDS = 100 };

static FILE* output;
static int is_child;
static int life = -1;
static char home[4096];  // the folder in which the server was started

static void must(int condition) {
  if (!condition) _exit(FAILED_TO_SERVE);
}

static int descriptor(const char* variable) {
  const char* value = getenv(variable);
  must(value != NULL);
  return atoi(value);
}

// Whether the daemon has gone, after some milliseconds at most.
static int daemon_has_gone(int milliseconds) {
  struct pollfd line = {.fd = life, .events = 0};
  return poll(&line, 1, milliseconds) > 0;
}

// Has the kernel end this process with its parent. Who was the parent is asked again, for one that has gone already.
static void end_with(pid_t parent) { must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent); }

// While the front end reads the prelude, which takes a minute, and the shell and the driver in front of it.
__attribute__((constructor)) static void end_with_the_daemon(void) {
  if (getenv("WARMCC_LIFE") == NULL) return;
  life = descriptor("WARMCC_LIFE");
  if (getcwd(home, sizeof home) == NULL) home[0] = 0;
  must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && !daemon_has_gone(0));
}

// Below what holds for this process already, which a user without privileges cannot raise.
static void limit(int what, const char* variable) {
  const char* value = getenv(variable);
  if (value == NULL) return;
  struct rlimit both;
  must(getrlimit(what, &both) == 0);
  rlim_t wanted = strtoull(value, NULL, 10);
  if (wanted < both.rlim_max) both.rlim_max = wanted;
  both.rlim_cur = both.rlim_max;
  must(setrlimit(what, &both) == 0);
}

static long used_microseconds(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1000000L + used.tv_nsec / 1000;
}

static void into_huge_pages(unsigned long start, unsigned long end, int patient) {
  long limit = used_microseconds() + GRACE_MICROSECONDS;
  for (start = (start + HUGE_PAGE - 1) & -HUGE_PAGE; start + HUGE_PAGE <= end; start += HUGE_PAGE) {
    if (madvise((void*)start, HUGE_PAGE, MADV_COLLAPSE) != 0) return;
    if (!patient && used_microseconds() > limit) return;
    limit += WORTH_MICROSECONDS;
  }
}

// Has the kernel copy the memory that the child may write to, in one go and not page by page as it does: the heap into
// huge pages, if wanted, as a front end that walks lists through all of it misses the TLB a lot less then. There is time
// for all of it `ahead` of need; else only for huge pages that the kernel has at hand. What is left stays as it is.
static void copy_memory(int ahead) {
  int huge = getenv("WARMCC_HUGE") != NULL;
  if (!huge && !ahead) return;
  FILE* maps = fopen("/proc/self/maps", "re");
  unsigned long start, end;
  char line[4096], access[5];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx %4s", &start, &end, access) != 3 || strcmp(access, "rw-p") != 0) continue;
    if (huge && strstr(line, "[heap]") != NULL) into_huge_pages(start, end, ahead);
    if (ahead && strchr(line, '/') == NULL) madvise((void*)start, end - start, MADV_POPULATE_WRITE);
  }
  if (maps != NULL) fclose(maps);
}

// The compile itself: returns into the front end, which now opens the unit's file. Pages of the log and the output are
// the child's own.
static void become_compile(const char* folder) {
  must(chdir(folder) == 0);
  limit(RLIMIT_CPU, "WARMCC_CPU");
  limit(RLIMIT_AS, "WARMCC_MEMORY");
  int log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(log >= 0 && dup2(log, 1) >= 0 && dup2(log, 2) >= 0);
  if (output != NULL) {
    const char* name = strrchr(getenv("WARMCC_OUTPUT"), '/');
    int own = open(name != NULL ? name + 1 : getenv("WARMCC_OUTPUT"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(own >= 0 && dup2(own, fileno(output)) >= 0);
  }
  const char* rules = getenv("WARMCC_CONFINE");
  if (rules != NULL) must(confined_by(rules));
}

static int tell(int client, const char* answer) {
  return send(client, answer, strlen(answer), MSG_NOSIGNAL) == (ssize_t)strlen(answer);
}

static void tell_failure(int client, int error) {
  char answer[32];
  snprintf(answer, sizeof answer, "-%d", error);
  tell(client, answer);
}

// Waits for the child or for the client to hang up, whichever comes first, and answers.
static void watch(int client, pid_t child) {
  int ended = (int)syscall(SYS_pidfd_open, child, 0), error = ended < 0 ? errno : 0;
  struct pollfd both[] = {{.fd = ended, .events = POLLIN}, {.fd = client, .events = POLLRDHUP}};
  while (error == 0 && poll(both, 2, -1) < 0) {
    if (errno != EINTR) error = errno;
  }
  if (both[0].revents == 0) kill(child, SIGKILL);
  int status = 0;
  struct rusage used;
  pid_t found;
  while ((found = wait4(child, &status, 0, &used)) < 0 && errno == EINTR) {}
  if (found != child && error == 0) error = errno;
  if (error != 0) {
    tell_failure(client, error);
  } else {
    char answer[64];
    long seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec, rest = used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    snprintf(answer, sizeof answer, "%d %ld", status, seconds * 1000000L + rest);
    tell(client, answer);
  }
  _exit(0);
}

// The path that the client sends; ends when it hangs up, and when the path does not fit.
static void receive(int client, char* folder, size_t most) {
  ssize_t size;
  do {
    size = recv(client, folder, most - 1, MSG_TRUNC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 || size >= (ssize_t)most) tell_failure(client, size < 0 ? errno : ENAMETOOLONG);
  must(size > 0 && size < (ssize_t)most);
  folder[size] = 0;
}

// One request, in a process of its own; returns in the child.
static void serve_one(int client) {
  pid_t middleman = getpid();
  signal(SIGCHLD, SIG_DFL);
  char folder[4096];
  receive(client, folder, sizeof folder);
  pid_t child = fork();
  if (child < 0) {
    tell_failure(client, errno);
    _exit(FAILED_TO_SERVE);
  }
  if (child > 0) watch(client, child);
  is_child = 1;
  end_with(middleman);
  close(life);
  int ahead = strcmp(folder, AHEAD) == 0;
  copy_memory(ahead);
  if (ahead) {
    must(tell(client, AHEAD));
    receive(client, folder, sizeof folder);
  }
  close(client);
  become_compile(folder);
}

// The next connection. Where descriptors or memory are short, it waits a little: they come back.
static int next_client(int listener) {
  for (;;) {
    struct pollfd both[] = {{.fd = listener, .events = POLLIN}, {.fd = life, .events = 0}};
    int ready = poll(both, 2, -1), error = ready < 0 ? errno : 0;
    if (both[1].revents != 0) _exit(0);
    if (error == 0) {
      int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
      if (client >= 0) return client;
      error = errno;
    }
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      if (daemon_has_gone(SHORTAGE_MILLISECONDS)) _exit(0);
    } else {
      must(error == EINTR || error == EAGAIN || error == ECONNABORTED);
    }
  }
}

// Serves until it is killed or the daemon has gone; returns in each child.
static void serve(void) {
  int listener = descriptor("WARMCC_LISTENER");
  pid_t server = getpid();
  unsetenv("LD_PRELOAD");
  signal(SIGCHLD, SIG_IGN);  // nobody waits for the middlemen
  fflush(NULL);
  must(tell(life, READY));
  for (;;) {
    int client = next_client(listener);
    pid_t middleman = fork();
    if (middleman == 0) {
      end_with(server);
      close(listener);
      serve_one(client);
      return;
    }
    if (middleman < 0) tell_failure(client, errno);
    close(client);
  }
}

static void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) _exit(FAILED_TO_SERVE);
  return found;
}

// The name below the folder in which the server was started; the front ends of CUDA 13.2 make relative names absolute.
static const char* below(const char* path) {
  size_t length = strlen(home);
  return length > 0 && strncmp(path, home, length) == 0 && path[length] == '/' ? path + length + 1 : path;
}

// Such a name means a file in the child's own folder, where it writes all of its files.
static const char* meant(const char* path, int writes) {
  const char* own = below(path);
  return is_child && (writes || access(own, F_OK) == 0) ? own : path;
}

static void stop_at(const char* path) {
  const char* stop = is_child ? NULL : getenv("WARMCC_STOP");
  if (stop != NULL && strcmp(below(path), stop) == 0) serve();
}

static FILE* open_stream(const char* function, const char* path, const char* mode) {
  stop_at(path);
  FILE* found = ((FILE * (*)(const char*, const char*)) next(function))(meant(path, mode[0] != 'r'), mode);
  const char* wanted = is_child ? NULL : getenv("WARMCC_OUTPUT");
  if (wanted != NULL && mode[0] == 'w' && strcmp(below(path), below(wanted)) == 0) output = found;
  return found;
}

FILE* fopen(const char* path, const char* mode) { return open_stream("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream("fopen64", path, mode); }

static int open_file(const char* function, const char* path, int flags, mode_t mode) {
  stop_at(path);
  return ((int (*)(const char*, int, mode_t))next(function))(meant(path, flags & O_CREAT), flags, mode);
}

#define DEFINE_OPEN(name)                                 \
  int name(const char* path, int flags, ...) {            \
    va_list rest;                                         \
    va_start(rest, flags);                                \
    mode_t mode = flags & O_CREAT ? va_arg(rest, int) : 0; \
    va_end(rest);                                         \
    return open_file(#name, path, flags, mode);           \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_STAT(name)                                                                       \
  int name(int version, const char* path, struct stat* found) {                                \
    return ((int (*)(int, const char*, struct stat*))next(#name))(version, meant(path, 0), found); \
  }
DEFINE_STAT(__xstat)
DEFINE_STAT(__lxstat)

// A temporary file that the front end made before the stop belongs to all children: none removes it.
int unlink(const char* path) {
  const char* own = meant(path, 0);
  if (is_child && own[0] == '/') return 0;
  return ((int (*)(const char*))next("unlink"))(own);
}
