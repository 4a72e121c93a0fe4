// Preloaded into a compiler front end, it turns the process into a fork server: stopped at the moment when it opens the
// unit's own file, with the whole prelude read, it forks once per request.
//
//   WARMCC_STOP    the name under which the front end opens the unit's file
//   WARMCC_SOCKET  where it listens, a Unix socket of type SEQPACKET
//   WARMCC_OUTPUT  a file that the front end opened for writing before the stop; each child writes one of that name in
//                  its own folder instead (cc1plus opens its output first, the others last)
//   WARMCC_HUGE    set where each child shall first copy its heap into huge pages
//   WARMCC_CPU     seconds of processor time that a child may use; WARMCC_MEMORY its address space in bytes
//
// A request is the path of a folder. Its child changes there, writes what it prints into `log`, and goes on: relative
// names on the command line land in the folder. A middleman waits for the child and answers "STATUS MICROSECONDS"
// (as of wait4, with the processor time), or kills it when the client hangs up.
// With "+" the child is forked ahead of need: it has its memory copied, answers "+", and waits for the path.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

#define AHEAD "+"

enum { FAILED_TO_SERVE = 99 };
enum { HUGE_PAGE = 2 << 20, WORTH_MICROSECONDS = 2500, GRACE_MICROSECONDS = 50000 };

static FILE* output;
static int is_child;

static void limit(int what, const char* variable) {
  const char* value = getenv(variable);
  if (value == NULL) return;
  struct rlimit both = {strtoull(value, NULL, 10), strtoull(value, NULL, 10)};
  setrlimit(what, &both);
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
  if (chdir(folder) != 0) _exit(FAILED_TO_SERVE);
  limit(RLIMIT_CPU, "WARMCC_CPU");
  limit(RLIMIT_AS, "WARMCC_MEMORY");
  int log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(FAILED_TO_SERVE);
  if (output != NULL) {
    const char* name = strrchr(getenv("WARMCC_OUTPUT"), '/');
    int own = open(name != NULL ? name + 1 : getenv("WARMCC_OUTPUT"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (own < 0 || dup2(own, fileno(output)) < 0) _exit(FAILED_TO_SERVE);
  }
}

// Waits for the child or for the client to hang up, whichever comes first.
static void watch(int client, pid_t child) {
  int ended = (int)syscall(SYS_pidfd_open, child, 0);
  struct pollfd both[] = {{.fd = ended, .events = POLLIN}, {.fd = client, .events = POLLRDHUP}};
  while (poll(both, 2, -1) < 0 && errno == EINTR) {}
  if (both[0].revents == 0) kill(child, SIGKILL);
  int status = 0;
  struct rusage used;
  while (wait4(child, &status, 0, &used) < 0 && errno == EINTR) {}
  char answer[64];
  long time = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  int size = snprintf(answer, sizeof answer, "%d %ld", status, time);
  (void)!send(client, answer, size, MSG_NOSIGNAL);
  _exit(0);
}

static void receive(int client, char* folder, size_t most) {
  ssize_t size = recv(client, folder, most - 1, 0);
  if (size <= 0) _exit(FAILED_TO_SERVE);
  folder[size] = 0;
}

// Serves until it is killed; returns in each child.
static void serve(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char* path = getenv("WARMCC_SOCKET");
  if (path == NULL || strlen(path) + 1 >= sizeof address.sun_path) _exit(FAILED_TO_SERVE);
  sprintf(address.sun_path, "%s~", path);
  unsetenv("LD_PRELOAD");
  signal(SIGCHLD, SIG_IGN);  // middlemen are nobody's to wait for
  fflush(NULL);
  int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  // It has its name once it listens: whoever sees it may connect.
  if (server < 0 || bind(server, (struct sockaddr*)&address, sizeof address) != 0 || listen(server, 64) != 0 ||
      rename(address.sun_path, path) != 0) {
    _exit(FAILED_TO_SERVE);
  }
  for (;;) {
    int client = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (fork() == 0) {
      close(server);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      signal(SIGCHLD, SIG_DFL);
      char folder[4096];
      receive(client, folder, sizeof folder);
      pid_t child = fork();
      if (child != 0) watch(client, child);
      is_child = 1;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int ahead = strcmp(folder, AHEAD) == 0;
      copy_memory(ahead);
      if (ahead) {
        (void)!send(client, AHEAD, strlen(AHEAD), MSG_NOSIGNAL);
        receive(client, folder, sizeof folder);
      }
      close(client);
      become_compile(folder);
      return;
    }
    close(client);
  }
}

static void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) _exit(FAILED_TO_SERVE);
  return found;
}

static void stop_at(const char* path) {
  const char* stop = is_child ? NULL : getenv("WARMCC_STOP");
  if (stop != NULL && strcmp(path, stop) == 0) serve();
}

static FILE* open_stream(const char* function, const char* path, const char* mode) {
  stop_at(path);
  FILE* found = ((FILE * (*)(const char*, const char*)) next(function))(path, mode);
  const char* wanted = is_child ? NULL : getenv("WARMCC_OUTPUT");
  if (wanted != NULL && mode[0] == 'w' && strcmp(path, wanted) == 0) output = found;
  return found;
}

FILE* fopen(const char* path, const char* mode) { return open_stream("fopen", path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream("fopen64", path, mode); }

static int open_file(const char* function, const char* path, int flags, mode_t mode) {
  stop_at(path);
  return ((int (*)(const char*, int, mode_t))next(function))(path, flags, mode);
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

// A temporary file that the front end made before the stop belongs to all children: none removes it.
int unlink(const char* path) {
  if (is_child && path[0] == '/') return 0;
  return ((int (*)(const char*))next("unlink"))(path);
}
