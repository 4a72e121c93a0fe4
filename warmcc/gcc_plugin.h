// What warmcc's plugins for g++ need of GCC, without a header of GCC's: cc1plus exports these functions, and the events
// keep their places because GCC only ever appends to plugin.def. A plugin is one unit.

#pragma once

union tree_node;

extern "C" {
int register_callback(const char* plugin, int event, void (*callback)(void*, void*), void* user_data);
int plugin_is_GPL_compatible = 1;
}

struct plugin_argument {
  char* key;
  char* value;
};
struct plugin_name_args {
  char* base_name;
  const char* full_name;
  int argc;
  plugin_argument* argv;
};
enum plugin_event {
  PARSED_FUNCTION = 1, FINISH_TYPE = 3, FINISH_DECL = 4, FINISH_UNIT = 5, PRE_GENERICIZE = 6, FINISH = 7,
  START_UNIT = 14, PRAGMAS = 15, IPA = 18
};
