// Confines this process for good, and all that it starts, as a text of rules says, which daemon/system/landlock.py writes:
// first a line of numbers (the size of Landlock's attributes, these, and what may be done where files are read, and
// where they are written), and then a line for each rule:
//
//   r PATH         may be read; a path that does not exist needs no rule
//   w PATH         may be written
//   f A B C D      an instruction of the filter of system calls
//   e NAME=VALUE   a variable for what is run
//
// The rules are made in one place, in Python, and this is quick enough to stand in front of each step of a build.

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Landlock's system calls, the same on every architecture; and what a rule for a single file may hold.
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, BENEATH = 1, OF_FILES = 7 | 1 << 14 | 1 << 15 };
enum { MOST_INSTRUCTIONS = 255, SET_FILTER = 1, WITH_SPECULATION = 4 };

static int allow(int ruleset, const char* path, uint64_t access) {
  struct __attribute__((packed)) { uint64_t access; int32_t folder; } rule = {access, open(path, O_PATH | O_CLOEXEC)};
  if (rule.folder < 0) return errno == ENOENT || errno == ENOTDIR;
  struct stat found;
  int known = fstat(rule.folder, &found) == 0;
  if (known && !S_ISDIR(found.st_mode)) rule.access &= OF_FILES;
  int added = known && syscall(ADD_RULE, ruleset, BENEATH, &rule, 0) == 0;
  close(rule.folder);
  return added;
}

// Whether all of it holds from now on; errno says what was wrong.
static int confined_by(const char* rules) {
  static struct sock_filter lines[MOST_INSTRUCTIONS];
  struct sock_fprog program = {0, lines};
  unsigned long handled[3], size, reading, writing;
  errno = EINVAL;
  int at = 0, read = sscanf(rules, "%lu %lu %lu %lu %lu %lu%n", &size, &handled[0], &handled[1], &handled[2], &reading,
                            &writing, &at);
  int ruleset = read == 6 && size <= sizeof handled ? (int)syscall(CREATE_RULESET, handled, size, 0) : -1;
  int good = ruleset >= 0;
  char rest[8192];
  for (rules += at; good && *rules == '\n'; rules += 2 + strlen(rest)) {
    errno = EINVAL;
    char kind = *++rules;
    good = kind != 0 && rules[1] == ' ' && sscanf(rules + 2, "%8191[^\n]", rest) == 1;
    if (good && kind == 'r') good = allow(ruleset, rest, reading);
    if (good && kind == 'w') good = allow(ruleset, rest, writing);
    if (good && kind == 'e') good = putenv(strdup(rest)) == 0;
    if (good && kind == 'f') {
      struct sock_filter* line = &lines[program.len++];
      good = program.len <= MOST_INSTRUCTIONS &&
             sscanf(rest, "%hu %hhu %hhu %u", &line->code, &line->jt, &line->jf, &line->k) == 4;
    }
  }
  good = good && *rules == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(RESTRICT_SELF, ruleset, 0) == 0;
  if (ruleset >= 0) close(ruleset);
  return good && (program.len == 0 || syscall(SYS_seccomp, SET_FILTER, WITH_SPECULATION, &program) == 0);
}
