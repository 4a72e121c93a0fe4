// A plugin for g++ that finishes a precompiled header: at `#pragma warmcc finish`, the last line of the prelude, every
// template that the headers left pending is instantiated, so that the PCH carries the bodies and the units need not
// make them again. (Ordinarily g++ instantiates at the end of each translation unit.)
//
// It is compiled against no header of GCC: cc1plus exports these functions, and PLUGIN_PRAGMAS keeps its place because
// GCC only ever appends to plugin.def. The finished PCH is used without the plugin.

struct cpp_reader;
void instantiate_pending_templates(int retries);
void c_register_pragma(const char* space, const char* name, void (*handler)(cpp_reader*));
extern "C" int register_callback(const char* plugin, int event, void (*callback)(void*, void*), void* user_data);
extern "C" {
int plugin_is_GPL_compatible = 1;
}

struct plugin_name_args {
  char* base_name;  // the rest is not read
};

namespace {
constexpr int PLUGIN_PRAGMAS = 15;

void finish(cpp_reader*) { instantiate_pending_templates(0); }
void announce(void*, void*) { c_register_pragma("warmcc", "finish", finish); }
}  // namespace

extern "C" int plugin_init(plugin_name_args* info, void*) {
  register_callback(info->base_name, PLUGIN_PRAGMAS, announce, nullptr);
  return 0;
}
