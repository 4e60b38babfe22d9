#include "tf_ops/base/config.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tf_ops/base/log.h"
#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

Status Bad(const char* env, const char* text, const std::string& wanted) {
  return Status::InvalidArgument(StrCat(env, " is '", text, "'; ", wanted));
}

bool SaysNo(const char* text) {
  for (const char* no : {"0", "false", "no", "off"}) {
    if (strcasecmp(text, no) == 0) return true;
  }
  return false;
}

// Whether a variable that is not built yet asks for what is there anyway: nothing, or Gloo,
// whose place the built-in TCP transport has.
bool AsksForNothing(const char* text) { return SaysNo(text) || strcasecmp(text, "gloo") == 0; }

Status Parse(const char* env, const char* text, double, double, bool* value) {
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (strcasecmp(text, yes) == 0) return *value = true, Status::Ok();
  }
  if (SaysNo(text)) return *value = false, Status::Ok();
  return Bad(env, text, "use 1, true, yes, on, 0, false, no or off");
}

Status Parse(const char* env, const char* text, double min, double max, double* value) {
  char* end = nullptr;
  errno = 0;
  const double parsed = std::strtod(text, &end);
  if (end == text || *end != '\0' || errno == ERANGE || !(parsed >= min && parsed <= max)) {
    return Bad(env, text, StrCat("use a number from ", min, " to ", max));
  }
  *value = parsed;
  return Status::Ok();
}

Status Parse(const char* env, const char* text, int64_t min, int64_t max, int64_t* value) {
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno == ERANGE || parsed < min || parsed > max) {
    return Bad(env, text, StrCat("use a whole number from ", min, " to ", max));
  }
  *value = parsed;
  return Status::Ok();
}

Status Parse(const char*, const char* text, int, int, std::string* value) {
  *value = text;
  return Status::Ok();
}

}  // namespace

Status ReadConfig(const Lookup& lookup, const std::function<void(const std::string&)>& warn,
                  Config* config) {
#define HVD_KNOB(id, env, type, def, min, max, unit, help)              \
  if (const char* text = lookup(env); text != nullptr && *text != '\0') \
    HVD_RETURN_IF_ERROR(Parse(env, text, min, max, &config->id));
#define HVD_KNOB_LATER(env, what)                                                                \
  if (const char* text = lookup(env); text != nullptr && *text != '\0' && !AsksForNothing(text)) \
    warn(StrCat(env, "=", text, " has no effect: ", what, " is not built yet"));
#include "tf_ops/base/config.def"
#undef HVD_KNOB
#undef HVD_KNOB_LATER
  return Status::Ok();
}

Status ReadConfigFromEnvironment(bool warn, Config* config) {
  return ReadConfig([](const char* env) -> const char* { return std::getenv(env); },
                    [warn](const std::string& text) {
                      if (warn) {
                        HVD_LOG(kWarning) << text;
                      }
                    },
                    config);
}

}  // namespace hvd
