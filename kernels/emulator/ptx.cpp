// Reads what a PTX text declares (PTX ISA: .version, .target, .entry and its .param list).
#include <cstdio>
#include <cstdlib>

#include "driver.h"

namespace {
// `.param .u64 name` or `.param .align 8 .b8 name[24]`, without the first word.
uint32_t parameter_bytes(const std::string& text) {
  const size_t bracket = text.find('[');
  if (bracket != std::string::npos) return atoi(text.c_str() + bracket + 1);
  const size_t type = text.find('.');
  const size_t bits = text.find_first_of("0123456789", type);
  return bits == std::string::npos ? 0 : atoi(text.c_str() + bits) / 8;
}

// The entry whose name ends at `at`.
Entry read_entry(const std::string& ptx, size_t at) {
  Entry entry;
  const size_t body = std::min(ptx.find('{', at), ptx.size()), list_end = std::min(ptx.find(')', at), body);
  const std::string head = ptx.substr(at, body - at);
  const size_t limit = head.find(".maxntid");
  if (limit != std::string::npos) {
    unsigned x = 1, y = 1, z = 1;
    sscanf(head.c_str() + limit, ".maxntid %u, %u, %u", &x, &y, &z);
    entry.most_threads = x * y * z;
  }
  for (size_t p = at; (p = ptx.find(".param", p)) < list_end;) {
    p += sizeof ".param" - 1;
    entry.sizes.push_back(parameter_bytes(ptx.substr(p, ptx.find_first_of(",)", p) - p)));
  }
  return entry;
}
}  // namespace

bool read_ptx(const std::string& text, Image& image) {
  const size_t version = text.find(".version"), target = text.find(".target sm_");
  int major = 0, minor = 0;
  if (version == std::string::npos || target == std::string::npos) return false;
  if (sscanf(text.c_str() + version, ".version %d.%d", &major, &minor) != 2) return false;
  image.version = major * 10 + minor;
  sscanf(text.c_str() + target, ".target sm_%d", &image.target);
  const std::string word = ".entry ";
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
    at += word.size();
    const size_t end = text.find_first_of("( \n", at);
    if (end == std::string::npos) return false;
    image.entries[text.substr(at, end - at)] = read_entry(text, end);
  }
  return true;
}
