// Config: the value of every knob of config.def, read once per init().
//
// The only place of the core that reads the environment.

#ifndef TF_OPS_BASE_CONFIG_H_
#define TF_OPS_BASE_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tf_ops/base/status.h"

namespace hvd {

struct Config {
#define HVD_TYPE_BOOL bool
#define HVD_TYPE_INT64 int64_t
#define HVD_TYPE_DOUBLE double
#define HVD_TYPE_STRING std::string
#define HVD_KNOB(id, env, type, def, min, max, unit, help) HVD_TYPE_##type id = def;
#define HVD_KNOB_LATER(env, what)
#include "tf_ops/base/config.def"
#undef HVD_KNOB
#undef HVD_KNOB_LATER
#undef HVD_TYPE_BOOL
#undef HVD_TYPE_INT64
#undef HVD_TYPE_DOUBLE
#undef HVD_TYPE_STRING
};

// nullptr: not set.
using Lookup = std::function<const char*(const char* env)>;

// Fills `config` from `lookup`; an empty value counts as not set.  InvalidArgument
// names the variable, its value and what it may be.  `warn` hears of each variable
// that is set but not built yet.
Status ReadConfig(const Lookup& lookup, const std::function<void(const std::string&)>& warn,
                  Config* config);

// ReadConfig from the process's environment; `warn`: whether to log what is not built yet.
Status ReadConfigFromEnvironment(bool warn, Config* config);

}  // namespace hvd

#endif  // TF_OPS_BASE_CONFIG_H_
