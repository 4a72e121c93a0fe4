// Preloaded into compilers: the memory that they ask the kernel for comes in huge pages. What a compiler knows of torch's
// headers is spread over a gigabyte, and with small pages most steps through it wait for the page tables.
//
// malloc does the same by itself (GLIBC_TUNABLES, glibc.malloc.hugetlb); this is for what is asked of the kernel directly,
// as by g++'s garbage collector. Only time depends on it. Where a huge page takes long to get, because memory is short or
// in pieces, the process goes on with small ones.

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, LONG_MICROSECONDS = 20000 };

static _Atomic int is_short;

static int64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void advise(void* memory, size_t length) {
  if (madvise(memory, length, MADV_HUGEPAGE) != 0) return;
  uintptr_t first = ((uintptr_t)memory + HUGE_PAGE - 1) & -(uintptr_t)HUGE_PAGE;
  if (first + HUGE_PAGE > (uintptr_t)memory + length) return;
  int64_t before = microseconds();
  *(volatile char*)first = 0;  // it is zero: this fetches the page
  if (microseconds() - before < LONG_MICROSECONDS) return;
  is_short = 1;
  madvise(memory, length, MADV_NOHUGEPAGE);
}

void* mmap(void* place, size_t length, int protection, int flags, int file, off_t offset) {
  void* memory = (void*)syscall(SYS_mmap, place, length, protection, flags, file, offset);
  const int plain = MAP_PRIVATE | MAP_ANONYMOUS, other = MAP_FIXED | MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB;
  if (memory != MAP_FAILED && length >= HUGE_PAGE && (flags & (plain | other)) == plain && (protection & PROT_WRITE) &&
      !is_short) {
    int error = errno;
    advise(memory, length);
    errno = error;
  }
  return memory;
}

void* mmap64(void* place, size_t length, int protection, int flags, int file, off_t offset) {
  return mmap(place, length, protection, flags, file, offset);
}
