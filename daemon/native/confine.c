// Runs a command confined: confine RULES COMMAND …  Exit code 125 when the rules cannot be set; nothing is run then.

#define _GNU_SOURCE
#include "confine.h"

int main(int count, char** words) {
  if (count < 3 || !confined_by(words[1])) {
    fprintf(stderr, "the sandbox cannot be set up: %s\n", count < 3 ? "no command" : strerror(errno));
    return 125;
  }
  execvp(words[2], words + 2);
  fprintf(stderr, "%s: %s\n", words[2], strerror(errno));
  return 127;
}
