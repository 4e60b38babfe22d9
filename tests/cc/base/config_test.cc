#include "tf_ops/base/config.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tf_ops/base/log.h"

namespace hvd {
namespace {

Status Read(const std::map<std::string, std::string>& env, Config* config,
            std::vector<std::string>* warnings = nullptr) {
  return ReadConfig(
      [&](const char* name) {
        const auto it = env.find(name);
        return it == env.end() ? nullptr : it->second.c_str();
      },
      [&](const std::string& text) {
        if (warnings != nullptr) warnings->push_back(text);
      },
      config);
}

TEST(Config, DefaultsComeFromTheTable) {
  Config config;
  ASSERT_TRUE(Read({{"HOROVOD_CYCLE_TIME", ""}}, &config).ok());
  EXPECT_EQ(config.cycle_time_ms, 0);
  EXPECT_EQ(config.transport, "auto");
  EXPECT_FALSE(config.stall_check_disable);
}

TEST(Config, GoodValues) {
  Config config;
  ASSERT_TRUE(Read({{"HOROVOD_FUSION_THRESHOLD", "0"},
                    {"HOROVOD_CYCLE_TIME", "2.5"},
                    {"HOROVOD_STALL_CHECK_DISABLE", "Yes"},
                    {"HOROVOD_TRANSPORT", "tcp"}},
                   &config)
                  .ok());
  EXPECT_EQ(config.fusion_threshold_bytes, 0);
  EXPECT_EQ(config.cycle_time_ms, 2.5);
  EXPECT_TRUE(config.stall_check_disable);
  EXPECT_EQ(config.transport, "tcp");
}

TEST(Config, BadValuesNameVariableAndValue) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"HOROVOD_FUSION_THRESHOLD", "-1"},
      {"HOROVOD_FUSION_THRESHOLD", "64MB"},
      {"HOROVOD_FUSION_THRESHOLD", "1e3"},
      {"HOROVOD_FUSION_THRESHOLD", "99999999999999999999"},
      {"HOROVOD_CYCLE_TIME", "nan"},
      {"HOROVOD_CYCLE_TIME", "-0.1"},
      {"HOROVOD_STALL_CHECK_DISABLE", "maybe"},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"},
      {"HOROVOD_STAGING_BYTES", "4095"},
  };
  for (const auto& [name, value] : bad) {
    Config config;
    const Status status = Read({{name, value}}, &config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name << "=" << value;
    EXPECT_NE(status.message().find(name), std::string::npos) << status;
    EXPECT_NE(status.message().find("'" + value + "'"), std::string::npos) << status;
  }
}

TEST(Config, AVariableThatIsNotBuiltYetWarns) {
  Config config;
  std::vector<std::string> warnings;
  ASSERT_TRUE(Read({{"HOROVOD_AUTOTUNE", "1"}}, &config, &warnings).ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("HOROVOD_AUTOTUNE"), std::string::npos);
}

TEST(Log, LevelsByName) {
  LogLevel level;
  EXPECT_TRUE(ParseLogLevel("fatal", &level).ok());
  EXPECT_EQ(level, LogLevel::kError);
  EXPECT_EQ(ParseLogLevel("loud", &level).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hvd
