// A plugin for g++ that finishes a precompiled header, in two halves.
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

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gcc_plugin.h"

struct cpp_reader;
void instantiate_pending_templates(int retries);
void c_register_pragma(const char* space, const char* name, void (*handler)(cpp_reader*));
size_t tree_size(const tree_node* node);
int decl_linkage(tree_node* declaration);

namespace {

constexpr int INTERNAL_LINKAGE = 1;

void finish(cpp_reader*) { instantiate_pending_templates(0); }
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
    } else if (std::strcmp(info->argv[i].key, "inline") == 0 && info->argv[i].value != nullptr) {
      char* rest = nullptr;
      inline_offset = std::strtoul(info->argv[i].value, &rest, 10);
      inline_mask = static_cast<unsigned char>(std::strtoul(rest + 1, nullptr, 10));
      register_callback(info->base_name, PRE_GENERICIZE, let_go, nullptr);
    }
  }
  return 0;
}
