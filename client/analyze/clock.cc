// A plugin for g++ that says where the front end spends its time: in the declarations of which header, and in which
// instances of function templates, with the instance that asked for it where one did.
//
// g++ reads all text of a unit first, and parses then. Between two events of the parser (a declaration, a type or a
// function has ended) the time belongs to the file in which the parser is.

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gcc_plugin.h"

typedef unsigned int location_t;
struct expanded_location {
  const char* file;
  int line;
  int column;
  void* data;
  bool sysp;
};
struct tinst_level {  // the beginning of GCC's structure since version 9; tried before it is used
  tinst_level* next;
  tree_node* declaration;
  tree_node* arguments;  // null where the declaration is an instance itself
};
expanded_location expand_location(location_t);
extern location_t input_location;
extern tree_node* current_function_decl;
const char* decl_as_string(tree_node* declaration, int flags);
tinst_level* outermost_tinst_level();

namespace {

double now() {
  timespec at;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);  // other programs do not count
  return at.tv_sec + at.tv_nsec * 1e-9;
}

struct file_time {
  const char* file;
  double seconds;
};
constexpr unsigned FILES = 1 << 15;
file_time files[FILES];

FILE* output = nullptr;
double last = 0, began = 0, first = 0, parsed = 0, boundary = 0;
constexpr double LEAST = 0.0002;  // shorter functions are not named, as that would take as long

// The time since the last event belongs to the file in which the parser is.
double spend() {
  double at = now();
  if (first == 0) {
    first = at;  // all before it was preprocessing
  } else if (const char* file = expand_location(input_location).file) {
    unsigned place = (reinterpret_cast<unsigned long>(file) >> 3) * 2654435761u % FILES;
    for (unsigned tries = 0; tries < FILES; ++tries, place = (place + 1) % FILES) {
      if (files[place].file == nullptr) files[place].file = file;
      if (files[place].file == file) {
        files[place].seconds += at - last;
        break;
      }
    }
  }
  return last = at;
}

void passed(void*, void*) {
  double at = spend();
  if (current_function_decl == nullptr) boundary = at;  // else it is of a function's body
}

void parsed_function(void*, void*) { boundary = spend(); }

// A function is whole: one that was parsed, or an instance of a template. Instances are made one after the other, so what
// has passed since the last end of something is this one's.
void made_function(void* function, void*) {
  double at = spend(), took = at - boundary;
  boundary = at;
  if (took < LEAST || output == nullptr || function == nullptr) return;
  const char* name = decl_as_string(static_cast<tree_node*>(function), 0);
  if (name != nullptr && std::strstr(name, " [with ") != nullptr) {
    std::fprintf(output, "T\t%.6f\t%s\t", took, name);  // the next name takes its place
    tinst_level* level = outermost_tinst_level();
    bool asked = level != nullptr && level->arguments == nullptr && level->declaration != function;
    std::fprintf(output, "%s\n", asked ? decl_as_string(level->declaration, 0) : "");
  }
  boundary = last = now();  // the name took time, too
}

void start_unit(void*, void*) { began = last = now(); }
void ipa(void*, void*) {
  if (parsed == 0) parsed = spend();
}

void finish(void*, void*) {
  if (output == nullptr) return;
  double at = now();
  if (parsed == 0) parsed = last;
  std::fprintf(output, "P\t%.6f\t%.6f\t%.6f\n", first - began, parsed - first, at - parsed);
  for (const file_time& one : files)
    if (one.file != nullptr) std::fprintf(output, "F\t%.6f\t%s\n", one.seconds, one.file);
  std::fclose(output);
}

}  // namespace

extern "C" int plugin_init(plugin_name_args* info, void*) {
  for (int i = 0; i < info->argc; ++i)
    if (std::strcmp(info->argv[i].key, "output") == 0) output = std::fopen(info->argv[i].value, "w");
  register_callback(info->base_name, START_UNIT, start_unit, nullptr);
  register_callback(info->base_name, PARSED_FUNCTION, parsed_function, nullptr);
  register_callback(info->base_name, PRE_GENERICIZE, made_function, nullptr);
  register_callback(info->base_name, FINISH_TYPE, passed, nullptr);
  register_callback(info->base_name, FINISH_DECL, passed, nullptr);
  register_callback(info->base_name, IPA, ipa, nullptr);
  register_callback(info->base_name, FINISH, finish, nullptr);
  return 0;
}
