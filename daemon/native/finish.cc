// A plugin for g++ that finishes a precompiled header, in two halves, and has it written faster.
//
// At `#pragma warmcc finish`, the last line of the prelude, every template that the headers left pending is instantiated,
// so that the PCH carries the bodies and the units need not make them again. (Ordinarily g++ instantiates at the end of
// each translation unit.)
//
// And it lets go of what nothing uses. Without optimisation g++ keeps every static function that is not declared inline,
// with all that it calls, in every unit. Declared inline it is emitted when something refers to it, and only then; that is
// all that the word changes without optimisation. Which bit of a declaration says so is measured, not known:
// with the argument `measure` the plugin compares functions that differ in nothing else, and prints where they differ;
// with `inline=OFFSET:MASK` it sets these bits.
//
// The finished PCH is used without the plugin.
//
// A third of the time of a PCH goes into one sort: g++ writes millions of objects by their new addresses, and its
// comparison looks behind two pointers each time. With the argument `sort` the addresses are taken out first. Where they
// are in an object is measured, and the result is compared with g++'s own order; where anything is not as expected, g++
// sorts itself. With `sort=tell` the plugin prints how many it has sorted.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gcc_plugin.h"

struct cpp_reader;
void instantiate_pending_templates(int retries);
void c_register_pragma(const char* space, const char* name, void (*handler)(cpp_reader*));
size_t tree_size(const tree_node* node);
int decl_linkage(tree_node* declaration);
using Compare = int (*)(const void*, const void*);
void gcc_qsort(void* base, size_t count, size_t size, Compare compare) __attribute__((weak));

namespace {

// ---------------------------------------------------------------- the sort

struct Keyed {
  std::uintptr_t key;
  void* object;
  bool operator<(const Keyed& other) const { return key < other.key; }
};
constexpr size_t MANY = 10000;
constexpr size_t LARGEST = 48;  // bytes of an object that are looked at
bool sorts = false, tells = false;

std::uintptr_t key_of(const void* object, size_t offset) {
  std::uintptr_t key;
  std::memcpy(&key, static_cast<const char*>(object) + offset, sizeof key);
  return key;
}

// Some thousand of them, taken at random.
template <class Visit>
bool all_sampled(void** objects, size_t count, Visit visit) {
  std::uint64_t random = 1;
  for (int i = 0; i < 4096; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (!visit(objects + (random >> 33) % count, objects + (random & 0x7fffffff) % count)) return false;
  }
  return true;
}

// Whether they are in memory: g++ also sorts addresses that the PCH will have.
bool are_mapped(void** objects, size_t count) {
  auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return all_sampled(objects, count, [page](void** one, void**) {
    auto at = reinterpret_cast<std::uintptr_t>(*one), first = at & ~(page - 1);
    unsigned char resident[2];
    return mincore(reinterpret_cast<void*>(first), at + LARGEST - first, resident) == 0;
  });
}

// Whether their order is that of the words that they have there.
bool is_key(void** objects, size_t count, size_t offset, Compare compare) {
  return all_sampled(objects, count, [=](void** a, void** b) {
    std::uintptr_t left = key_of(*a, offset), right = key_of(*b, offset);
    int order = compare(a, b);
    return (left < right) == (order < 0) && (left > right) == (order > 0);
  });
}

// Sorts them if that can be done by a key of theirs, and says whether.
bool sort_by_key(void** objects, size_t count, Compare compare) {
  if (!are_mapped(objects, count)) return false;
  size_t offset = 0;
  while (offset < LARGEST && !is_key(objects, count, offset, compare)) offset += sizeof(std::uintptr_t);
  if (offset == LARGEST) return false;
  auto* keyed = static_cast<Keyed*>(std::malloc(count * sizeof(Keyed)));
  if (keyed == nullptr) return false;
  for (size_t i = 0; i < count; ++i) keyed[i] = {key_of(objects[i], offset), objects[i]};
  std::sort(keyed, keyed + count);
  bool is_sorted = true;
  for (size_t i = 1; is_sorted && i < count; ++i) is_sorted = compare(&keyed[i - 1].object, &keyed[i].object) < 0;
  for (size_t i = 0; is_sorted && i < count; ++i) objects[i] = keyed[i].object;
  std::free(keyed);
  return is_sorted;
}

void sort(void* base, size_t count, size_t size, Compare compare);

// g++ calls its function directly, so the function's beginning is replaced by a jump.
struct Detour {
#if defined(__x86_64__)
  unsigned char there[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, ...; jmp rax
  static constexpr size_t ADDRESS = 2;
#elif defined(__aarch64__)
  unsigned char there[16] = {0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6};  // ldr x16, .+8; br x16; ...
  static constexpr size_t ADDRESS = 8;
#else
  unsigned char there[1] = {};
  static constexpr size_t ADDRESS = 1;  // none is known
#endif
  unsigned char before[sizeof there] = {};
  char* place = nullptr;

  // Has the function's beginning made writable; false where the machine does not allow that.
  bool open() {
    if (ADDRESS == 1 || &gcc_qsort == nullptr) return false;
    auto target = reinterpret_cast<std::uintptr_t>(&sort);
    auto at = reinterpret_cast<std::uintptr_t>(&gcc_qsort);
    auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), first = at & ~(page - 1);
    size_t length = at + sizeof there - first;
    if (mprotect(reinterpret_cast<void*>(first), length, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return false;
    place = reinterpret_cast<char*>(at);
    std::memcpy(before, place, sizeof before);
    std::memcpy(there + ADDRESS, &target, sizeof target);
    return true;
  }
  void set(bool on) {
    std::memcpy(place, on ? there : before, sizeof there);
    __builtin___clear_cache(place, place + sizeof there);
  }
} detour;

void sort(void* base, size_t count, size_t size, Compare compare) {
  detour.set(false);
  if (count < MANY || size != sizeof(void*) || !sort_by_key(static_cast<void**>(base), count, compare)) {
    gcc_qsort(base, count, size, compare);
  } else if (tells) {
    std::fprintf(stderr, "warmcc-sorted=%zu\n", count);
  }
  detour.set(true);
}

// ---------------------------------------------------------------- templates, and functions without use

constexpr int INTERNAL_LINKAGE = 1;

void finish(cpp_reader*) {
  instantiate_pending_templates(0);
  if (sorts && detour.open()) detour.set(true);  // what is left is to write the PCH
}
void announce(void*, void*) { c_register_pragma("warmcc", "finish", finish); }

size_t inline_offset = 0;
unsigned char inline_mask = 0;

void let_go(void* function, void*) {
  auto* node = static_cast<tree_node*>(function);
  if (decl_linkage(node) == INTERNAL_LINKAGE) static_cast<unsigned char*>(function)[inline_offset] |= inline_mask;
}

// The measured unit defines functions of which those are declared inline whose number has an odd number of ones in
// binary: nothing that counts upwards, such as an address or a number of its own, can follow that.
constexpr int MOST = 64;
const unsigned char* measured[MOST];
int count = 0;

void collect(void* function, void*) {
  if (count < MOST) measured[count++] = static_cast<unsigned char*>(function);
}

void compare(void*, void*) {
  size_t size = count < MOST ? 0 : tree_size(reinterpret_cast<const tree_node*>(measured[0]));
  for (size_t offset = 0; offset < size; ++offset) {
    unsigned char all_inline = 0xff, any_plain = 0;
    for (int i = 0; i < count; ++i) {
      if (__builtin_parity(i)) {
        all_inline &= measured[i][offset];
      } else {
        any_plain |= measured[i][offset];
      }
    }
    unsigned mask = all_inline & static_cast<unsigned char>(~any_plain);
    if (mask != 0) std::fprintf(stderr, "warmcc-inline=%zu:%u\n", offset, mask);
  }
}

}  // namespace

extern "C" int plugin_init(plugin_name_args* info, void*) {
  register_callback(info->base_name, PRAGMAS, announce, nullptr);
  for (int i = 0; i < info->argc; ++i) {
    if (std::strcmp(info->argv[i].key, "measure") == 0) {
      register_callback(info->base_name, PRE_GENERICIZE, collect, nullptr);
      register_callback(info->base_name, FINISH_UNIT, compare, nullptr);
    } else if (std::strcmp(info->argv[i].key, "sort") == 0) {
      sorts = true;
      tells = info->argv[i].value != nullptr;
    } else if (std::strcmp(info->argv[i].key, "inline") == 0 && info->argv[i].value != nullptr) {
      char* rest = nullptr;
      inline_offset = std::strtoul(info->argv[i].value, &rest, 10);
      inline_mask = static_cast<unsigned char>(std::strtoul(rest + 1, nullptr, 10));
      register_callback(info->base_name, PRE_GENERICIZE, let_go, nullptr);
    }
  }
  return 0;
}
